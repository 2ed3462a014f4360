// Sorting and filtering of tables, progress of an evaluation, and traces in Perfetto.
// Every page works without it.
"use strict";

const PERFETTO = "https://ui.perfetto.dev";

function cellValue(row, column) {
  const cell = row.cells[column];
  const text = (cell.dataset.value ?? cell.textContent).trim(); // a text may have a unit
  const number = Number(text.replace(/[,%+]/g, ""));
  return text !== "" && !Number.isNaN(number) ? number : text;
}

function compareValues(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return String(a).localeCompare(String(b));
}

function sortTable(table, heading, column) {
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compareValues(cellValue(a, column), cellValue(b, column)));
  if (!ascending) rows.reverse();
  table.tBodies[0].append(...rows);
}

function makeSortable(table) {
  if (table.tBodies[0].rows.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    if (heading.querySelector(".hidden, a")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sortTable(table, heading, column));
  });
}

function makeFilter(table) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 10) return;
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "search";
  label.className = "filter";
  label.append("Filter rows ", input);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}

function followEvaluation(output) {
  const events = new EventSource(output.dataset.events);
  events.addEventListener("output", (event) => {
    const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 5;
    output.append(JSON.parse(event.data));
    if (atEnd) output.scrollTop = output.scrollHeight;
  });
  events.addEventListener("end", () => {
    events.close();
    location.reload();
  });
}

// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
async function openTrace(button) {
  const perfetto = window.open(PERFETTO);
  if (!perfetto) return;
  const answer = await fetch(button.dataset.trace);
  const buffer = await answer.arrayBuffer();
  const timer = setInterval(() => perfetto.postMessage("PING", PERFETTO), 50);
  window.addEventListener("message", function listen(event) {
    if (event.origin !== PERFETTO || event.data !== "PONG") return;
    clearInterval(timer);
    window.removeEventListener("message", listen);
    const message = { perfetto: { buffer, title: button.dataset.title } };
    perfetto.postMessage(message, PERFETTO);
  });
}

for (const table of document.querySelectorAll("table.sortable")) {
  makeSortable(table);
  makeFilter(table);
}
for (const output of document.querySelectorAll("[data-events]")) followEvaluation(output);
for (const button of document.querySelectorAll("[data-trace]")) {
  button.hidden = false;
  button.addEventListener("click", () => openTrace(button));
}
