"use strict";
const find = document.getElementById("find"), state = document.getElementById("state");
const level = document.getElementById("level"), found = document.getElementById("found");
function search() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const filtered = words.length > 0 || state.value.trim() !== "";
  let count = 0;
  for (const group of document.querySelectorAll("#groups > details")) {
    const here = level.value.trim() === "" || group.dataset.level === level.value;
    let inside = 0;
    for (const row of group.querySelectorAll("tbody > tr")) {
      const text = row.textContent.toLowerCase();
      const fits = here && words.every((word) => text.includes(word))
        && (state.value.trim() === "" || row.querySelector(".tag").classList.contains(state.value));
      row.hidden = !fits;
      inside += fits;
    }
    group.hidden = inside === 0;
    if (filtered) group.open = inside > 0 && inside <= 200;
    count += inside;
  }
  found.textContent = count.toLocaleString("en") + (count === 1 ? " case" : " cases");
}
for (const input of [find, state, level]) input.addEventListener("input", search);
document.querySelector("form.search").addEventListener("submit", (event) => event.preventDefault());
