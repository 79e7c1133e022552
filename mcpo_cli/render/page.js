// A page works without this: it opens what an address names, sorts tables by their headings, and searches.
const wide = matchMedia("(min-width: 64rem)").matches;
if (wide) for (const piece of document.querySelectorAll("details.piece")) piece.open = true;
const reveal = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.querySelector(":scope > details");
  if (folded) folded.open = true;
};
addEventListener("hashchange", reveal);
reveal();

const value = (row, column) => row.cells[column].textContent.trim().replace("<", "").replaceAll(",", "");
const compare = (a, b) => (isNaN(parseFloat(a)) || isNaN(parseFloat(b)) ? a.localeCompare(b, "en", { numeric: true }) : parseFloat(a) - parseFloat(b));
for (const heading of document.querySelectorAll("thead th")) {
  heading.addEventListener("click", () => {
    const body = heading.closest("table").tBodies[0], down = heading.ariaSort === "ascending" ? -1 : 1;
    for (const other of heading.parentElement.cells) other.ariaSort = null;
    heading.ariaSort = down === 1 ? "ascending" : "descending";
    const column = heading.cellIndex;
    body.append(...[...body.rows].sort((a, b) => down * compare(value(a, column), value(b, column))));
  });
}

const items = [...document.querySelectorAll(".item")], search = document.querySelector("#search");
if (search) {
  search.closest("[hidden]").hidden = false;
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const fold of document.querySelectorAll("details.more")) fold.open = words.length > 0;
    for (const item of items) {
      const text = item.textContent.toLowerCase(), link = document.querySelector(`nav a[href="#${item.id}"]`);
      item.hidden = !words.every((word) => text.includes(word));
      if (link) link.parentElement.hidden = item.hidden;
      found += !item.hidden;
    }
    for (const section of document.querySelectorAll("main > section:has(.item)")) {
      section.hidden = !section.querySelector(".item:not([hidden])") && section.querySelector("article") !== null;
    }
    document.querySelector("#found").textContent = words.length ? `${found} of ${items.length}` : "";
  });
}
