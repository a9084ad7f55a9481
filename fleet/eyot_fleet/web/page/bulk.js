// The same action for many devices: chosen rows, or all that the filters leave. The service does a few at a time; this page shows each result.
import {$, heads, line, make, nothing, number, plural, setText, show, speak} from "./text.js";
import * as service from "./service.js";

const SHARE = 16, SHOWN = 200, WORDS = {"ask sync": "Ask: sync", "ask doctor": "Ask: doctor", "ask status": "Ask: status", connect: "Connect links that are down", relabel: "Change labels"};
const COLUMNS = ["Device", "Outcome", "What it says"];
const KINDS = {done: "good", refused: "warn", failed: "bad"}, STATES = {ok: "good", warning: "warn", failure: "bad"};
const ORDER = {failed: 0, refused: 1, failure: 2, warning: 3};
const chosen = new Set();
let changed = () => {}, running = null;

export const has = (name) => chosen.has(name);
export const offered = () => ["ask", "connect", "label"].some(service.may);
export function choose(names, on) {
  for (const name of names) if (on) chosen.add(name); else chosen.delete(name);
  draw();
}
export function clear() { chosen.clear(); draw(); }
export function watch(told) { changed = told; }
export function draw() {
  $("bulk").hidden = !offered();
  setText($("bulk-count"), chosen.size ? plural(chosen.size, "device") + (chosen.size === 1 ? " is chosen." : " are chosen.") : "No device is chosen.");
  const words = Object.entries(WORDS).filter(([action]) => service.may(action === "relabel" ? "label" : action.split(" ")[0]));
  show($("bulk-action"), words, () => words.map(([value, text]) => make("option", text, {value})));
  for (const each of document.querySelectorAll(".bulk-labels")) each.hidden = $("bulk-action").value !== "relabel";
  $("bulk-none").hidden = !chosen.size;
  $("bulk-run").disabled = !chosen.size || running !== null;
  $("bulk-stop").hidden = running === null;
  changed();
}
const labels = (id) => $(id).value.toLowerCase().split(/\s+/).filter(Boolean);
async function run() {
  const [action, report] = $("bulk-action").value.split(" "), names = [...chosen].sort(), results = [];
  const order = {do: action, ...(report ? {report} : {}), ...(action === "relabel" ? {add: labels("bulk-add"), remove: labels("bulk-remove")} : {})};
  if (action === "relabel" && !order.add.length && !order.remove.length) { tell("Name labels to add or to remove.", "warn"); $("bulk-add").focus(); return; }
  if (!confirm(WORDS[$("bulk-action").value] + (action === "relabel" ? " (add: " + (order.add.join(" ") || "none") + "; remove: " + (order.remove.join(" ") || "none") + ")" : "") + ": " + plural(names.length, "device") + "?")) return;
  const own = running = {stopped: false};
  showResults(results);
  $("bulk-results-part").hidden = false;
  draw();
  let problem = "", at = 0;
  for (; at < names.length && !own.stopped; at += SHARE) {
    tell(number(at) + " of " + number(names.length) + " are done…", "quiet");
    try { results.push(...await service.order("bulk", {devices: names.slice(at, at + SHARE), ...order})); }
    catch (error) { problem = error.message; break; }
    showResults(results);
  }
  running = null;
  draw();
  const bad = results.filter((each) => each.outcome !== "done").length, left = names.length - results.length;
  const words = number(results.length - bad) + " done, " + number(bad) + " not done" + (left ? ", " + number(left) + " not begun" : "") + (problem ? ": " + problem : "") + ".";
  tell(words, problem || bad ? "bad" : left ? "warn" : "good");
}
function tell(words, kind) { $("bulk-outcome").className = kind; setText($("bulk-outcome"), words); }
// What needs somebody comes first.
function showResults(results) {
  const place = (each) => ORDER[each.outcome] ?? ORDER[each.state] ?? 9;
  const found = [...results].sort((one, other) => place(one) - place(other) || one.device.localeCompare(other.device));
  const rows = found.slice(0, SHOWN).map((each) => line(COLUMNS, [
    (cell) => cell.append(make("a", each.device, {href: "#/device/" + encodeURIComponent(each.device)})),
    [each.outcome, KINDS[each.outcome] || "quiet"], [each.detail || "", "wide " + (STATES[each.state] || "")]]));
  if (found.length > SHOWN) rows.push(nothing(COLUMNS.length, "and " + number(found.length - SHOWN) + " more"));
  $("bulk-results").replaceChildren(...(rows.length ? rows : [nothing(COLUMNS.length, "Nothing yet.")]));
}
// All devices that the filters leave, on all pages.
export async function chooseAll(parameters) {
  try {
    const found = await service.get("/api/names", parameters);
    choose(found.names, true);
    if (found.total > found.names.length) tell("Only the first " + number(found.names.length) + " of " + number(found.total) + " are chosen.", "warn");
    speak(plural(chosen.size, "device") + (chosen.size === 1 ? " is chosen" : " are chosen"));
  } catch (error) { tell("Not chosen: " + error.message, "bad"); }
}
heads($("bulk-heads"), COLUMNS);
$("bulk-action").addEventListener("change", draw);
$("bulk-none").addEventListener("click", () => { clear(); $("bulk-all").focus(); });
$("bulk-stop").addEventListener("click", () => { if (running) running.stopped = true; });
$("bulk-form").addEventListener("submit", (event) => { event.preventDefault(); if (!$("bulk-run").disabled) run(); });
