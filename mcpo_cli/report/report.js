// Search: shows the articles, and their entries in the contents, that hold every word that is typed.
const articles = [...document.querySelectorAll("article")];
const search = document.querySelector("#search");
search.hidden = false;
search.addEventListener("input", ({ target }) => {
  const words = target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const article of articles) {
    const text = article.textContent.toLowerCase();
    article.hidden = !words.every((word) => text.includes(word));
    document.querySelector(`nav a[href="#${article.id}"]`).parentElement.hidden = article.hidden;
    found += !article.hidden;
  }
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = [...section.querySelectorAll("article")].every((article) => article.hidden);
  }
  document.querySelector("#found").textContent = words.length ? `${found} of ${articles.length}` : "";
});
