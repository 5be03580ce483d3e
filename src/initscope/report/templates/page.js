"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const told = table.closest("section").querySelector("[role=status]");
  const value = (row, column) => {
    const text = row.cells[column].dataset.v;
    return text === undefined || text === "" ? null : isNaN(text) ? text : Number(text);
  };
  const sortBy = (column) => {
    const head = heads[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row, place) => ({ row, place, key: value(row, column) }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
      const order = typeof a.key === "number" && typeof b.key === "number"
        ? a.key - b.key : String(a.key).localeCompare(String(b.key), undefined, { numeric: true });
      return (down ? -order : order) || a.place - b.place;
    });
    body.append(...rows.map((one) => one.row));
    told.textContent = `sorted by ${head.textContent.trim()}, ${down ? "largest" : "smallest"} first`;
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sortBy(column)));

  const section = table.closest("section");
  const boxes = [...section.querySelectorAll("input[type=checkbox]")];
  const search = section.querySelector("input[type=search]");
  const filter = () => {
    const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const words = search.value.trim().toLowerCase();
    let count = 0;
    for (const row of body.rows) {
      row.hidden = !shown.has(row.dataset.status) || !row.dataset.text.includes(words);
      count += !row.hidden;
    }
    told.textContent = `${count} of ${body.rows.length} steps shown`;
  };
  for (const box of boxes) box.addEventListener("change", filter);
  search.addEventListener("input", filter);
}
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = !(navigator.clipboard && navigator.clipboard.writeText);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    } catch (error) {
      button.textContent = "select and copy by hand";
    }
  });
}
