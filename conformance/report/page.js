// Filters: the verdict tiles and the text boxes.
const failures = [...document.querySelectorAll('.failure')];
const tiles = [...document.querySelectorAll('.tile')];
const box = document.querySelector('[data-filters=failures]');
const shown = document.querySelector('#failures .shown');
let chosen = null;

function showFailures() {
  const text = box.value.toLowerCase();
  let count = 0;
  for (const item of failures) {
    const fits = (!chosen || item.dataset.kind === chosen) &&
      item.textContent.toLowerCase().includes(text);
    item.hidden = !fits;
    count += fits;
  }
  shown.textContent = `${count} of ${failures.length}`;
}
box.addEventListener('input', showFailures);
for (const tile of tiles) {
  tile.addEventListener('click', () => {
    chosen = chosen === tile.dataset.kind ? null : tile.dataset.kind;
    tiles.forEach(t => t.classList.toggle('chosen', t.dataset.kind === chosen));
    showFailures();
  });
}
for (const input of document.querySelectorAll('[data-filters=rows]')) {
  const rows = [...input.closest('details').querySelectorAll('tbody tr')];
  input.addEventListener('input', () => {
    const text = input.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text);
  });
}
for (const button of document.querySelectorAll('.copy')) {
  button.addEventListener('click', () => {
    navigator.clipboard.writeText(button.closest('details').querySelector('.script').textContent);
    button.textContent = 'copied';
  });
}
showFailures();
