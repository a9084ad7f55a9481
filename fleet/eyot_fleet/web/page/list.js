// The list of devices: the service searches, filters, sorts and pages; rows that are seen change as events come.
import {$, STATES, SEVERITIES, age, asHeard, fill, forget, kindOf, known, make, now, number, plural, setNow, setText, show, size, span, speak, stateMark, visible} from "./text.js";
import * as bulk from "./bulk.js";
import * as service from "./service.js";

const AGAIN_MS = 5000, SHARE = 20, CHECK_MS = 500, TYPING_MS = 250;
const COLUMNS = [["name", "Device"], ["state", "State"], ["backlog", "Backlog"], ["oldest", "Oldest"], ["heard", "Last heard"], ["linked_since", "Link"], ["version", "Version"], ["alerts", "Alerts"]];
const SORTS = [...COLUMNS, ["eta", "ETA"], ["never_arrived", "Never arrived"], ["disk", "Free disk"], ["wear", "Flash wear"], ["certificate", "Certificate"], ["token", "Token"], ["clock", "Clock"]];
// What is worst comes first at the first click.
const DESCENDING = new Set(["backlog", "oldest", "alerts", "eta", "never_arrived", "wear", "clock"]);
let asked = null, page = null, revision = -1, asking = 0, active = false, due = false, next_at = 0, last_spoken = "";
const nodes = new Map();

const EMPTY = {text: "", labels: [], states: [], alerts: [], sort: "state", descending: "", page: 0, size: 50};
export function read(parameters) {
  const given = (name) => (parameters.get(name) || "").split("\n").filter(Boolean);
  return {
    text: parameters.get("text") || "", labels: given("labels"), states: given("states").filter((each) => STATES.includes(each)), alerts: given("alerts"),
    sort: SORTS.some(([name]) => name === parameters.get("sort")) ? parameters.get("sort") : "state",
    descending: parameters.get("descending") === "true" ? "true" : "", page: Math.max(0, Number(parameters.get("page")) || 0),
    size: [25, 50, 100, 200].includes(Number(parameters.get("size"))) ? Number(parameters.get("size")) : 50,
  };
}
function parametersOf(query) {
  const found = {};
  for (const [name, value] of Object.entries(query)) {
    const text = Array.isArray(value) ? value.join("\n") : String(value);
    if (text !== String(Array.isArray(EMPTY[name]) ? EMPTY[name].join("\n") : EMPTY[name])) found[name] = text;
  }
  return found;
}
export const address = () => asked ? "#/?" + new URLSearchParams(parametersOf(asked)) : "#/";
function ask(change, {keepPage = false, replace = false} = {}) {
  asked = {...asked, ...change};
  if (!keepPage) asked.page = 0;
  if (replace) history.replaceState(null, "", address()); else history.pushState(null, "", address());
  draw();
  load();
}
export async function load() {
  const query = asked, number = asking += 1, began = Date.now();
  let found;
  try {
    found = await service.get("/api/devices", {...parametersOf(query), ...(service.feed ? {feed: service.feed} : {})});
  } catch (error) {
    if (number === asking && error.status !== 401) { setText($("found"), "Not found: " + error.message); }
    return;
  }
  if (number !== asking || !active) return;
  // A service that is slow is asked less often.
  next_at = Date.now() + Math.max(AGAIN_MS, SHARE * (Date.now() - began));
  if (found.total && query.page * query.size >= found.total) { ask({page: Math.floor((found.total - 1) / query.size)}, {keepPage: true, replace: true}); return; }
  setNow(found.now);
  page = found;
  revision = found.revision;
  render();
}

function chip(words, pressed, act, mark) {
  const node = make("button", null, {type: "button", class: "chip", ...(pressed === null ? {} : {"aria-pressed": String(pressed)})});
  if (mark) node.append(make("span", null, {class: "dot " + mark, "aria-hidden": "true"}));
  node.append(...words.map((each) => each instanceof Node ? each : visible(each)));
  node.addEventListener("click", act);
  return node;
}
// Counts by state are those of the whole fleet: a state that is filtered out can be chosen as well.
let totals = null;
function states() {
  const counted = totals ? totals.states : page ? page.states : {};
  const chosen = new Set(asked.states);
  const focused = document.activeElement && $("states").contains(document.activeElement) ? document.activeElement.dataset.state : "";
  show($("states"), [counted, asked.states], () => STATES.filter((each) => counted[each] || chosen.has(each)).map((each) => {
    const node = chip([each + " ", make("b", number(counted[each] || 0))], chosen.has(each), () =>
      ask({states: chosen.has(each) ? asked.states.filter((other) => other !== each) : [...asked.states, each]}), kindOf(each));
    node.dataset.state = each;
    return node;
  }));
  if (focused && document.activeElement.dataset.state !== focused) for (const node of $("states").children) if (node.dataset.state === focused) node.focus();
}
function draw() {
  states();
  const used = [...asked.labels.map((each) => ["labels", each, "label " + each]), ...asked.alerts.map((each) => ["alerts", each, each === "*" ? "any alert" : "alert " + each])];
  show($("chosen"), used, () => used.map(([kind, value, words]) => {
    const node = chip([words + " ×"], null, () => { ask({[kind]: asked[kind].filter((other) => other !== value)}); $("text").focus(); });
    node.setAttribute("aria-label", "Remove the filter " + words);
    return node;
  }));
  if ($("text").value !== asked.text && document.activeElement !== $("text")) $("text").value = asked.text;
  $("sort").value = asked.sort; $("order").value = asked.descending; $("size").value = String(asked.size);
  show($("heads"), [asked.sort, asked.descending], () => COLUMNS.map(([sort, words]) => {
    const head = make("th", null, {scope: "col", role: "columnheader"}), here = asked.sort === sort;
    if (here) head.setAttribute("aria-sort", asked.descending ? "descending" : "ascending");
    const button = make("button", words + (here ? asked.descending ? " ▼" : " ▲" : ""), {type: "button", "aria-label": "Sort by " + words.toLowerCase()});
    button.dataset.sort = sort;
    button.addEventListener("click", () => {
      ask({sort, descending: (here ? !asked.descending : DESCENDING.has(sort)) ? "true" : ""});
      const again = $("heads").querySelector('[data-sort="' + sort + '"]');
      if (again) again.focus();
    });
    head.append(button);
    return head;
  }));
}
function render() {
  draw();
  const alerts = Object.entries(page.alerts).sort();
  show($("alert"), alerts, () => [["", "all devices"], ["*", "with any alert"], ...alerts.map(([kind, count]) => [kind, kind + " (" + number(count) + ")"])].map(([value, words]) => make("option", words, {value})));
  $("alert").value = asked.alerts.length ? asked.alerts[0] : "";
  if ($("alert").selectedIndex < 0) $("alert").selectedIndex = 0;
  show($("labels"), page.labels, () => Object.keys(page.labels).sort().map((each) => make("option", null, {value: each})));
  const filtered = page.total !== page.fleet;
  const words = filtered ? number(page.total) + " of " + plural(page.fleet, "device") : plural(page.fleet, "device");
  const sums = [known(page.backlog) && page.backlog ? plural(page.backlog, "message") + " behind" : "", page.never_arrived ? number(page.never_arrived) + " never arrived" : ""].filter(Boolean);
  setText($("found"), [words, ...sums].join(", ") + ".");
  if (filtered && words !== last_spoken) speak(words);
  last_spoken = words;
  rows();
  const pages = Math.max(1, Math.ceil(page.total / asked.size)), from = asked.page * asked.size;
  setText($("place"), page.total ? number(from + 1) + "–" + number(from + page.rows.length) + " of " + number(page.total) : "none");
  for (const [id, closed] of [["first-page", asked.page <= 0], ["previous-page", asked.page <= 0], ["next-page", asked.page + 1 >= pages], ["last-page", asked.page + 1 >= pages]]) $(id).setAttribute("aria-disabled", String(closed));
}
function rows() {
  const focused = document.activeElement, place = [...$("rows").children].findIndex((row) => row.contains(focused)), names = new Set(page.rows.map((each) => each.name));
  for (const name of [...nodes.keys()]) if (!names.has(name)) nodes.delete(name);
  const found = page.rows.map((each) => { update(each); return nodes.get(each.name).node; });
  const body = $("rows");
  if (!found.length) body.replaceChildren(empty());
  else if (body.children.length !== found.length || found.some((node, place) => body.children[place] !== node)) body.replaceChildren(...found);
  if (place < 0 || focused === document.activeElement) return;
  // The row with the focus has moved: the focus goes along. If it went, the focus stays at its place.
  const next = body.contains(focused) ? focused : (body.children[Math.min(place, body.children.length - 1)] || body).querySelector("a");
  if (next) next.focus({preventScroll: !body.contains(focused)});
}
function empty() {
  const row = make("tr", null, {role: "row"});
  row.append(make("td", page.fleet ? "No device has all of this." : "There are no devices yet: they appear with their first status message.", {colspan: COLUMNS.length, role: "cell", "data-label": "", class: "quiet"}));
  return row;
}
function cells(each) {
  return [
    [[each.name, each.labels, each.more_labels, bulk.offered()], (cell) => {
      cell.replaceChildren(...(bulk.offered() ? [box(each.name)] : []), make("a", each.name, {href: "#/device/" + encodeURIComponent(each.name)}), make("br"), ...(each.labels || []).map((label) => make("span", label, {class: "label"})));
      if (each.more_labels) cell.append(make("span", "+" + each.more_labels, {class: "label"}));
    }],
    [each.state, (cell) => cell.replaceChildren(stateMark(each.state))],
    [[each.backlog, each.backlog_bytes, each.eta_s, each.never_arrived], (cell) => {
      cell.replaceChildren(known(each.backlog) ? number(each.backlog) : "unknown");
      const more = [each.backlog ? size(each.backlog_bytes) : "", each.backlog && known(each.eta_s) ? "ETA " + span(each.eta_s) : ""].filter(Boolean);
      if (more.length) cell.append(make("span", " " + more.join(", "), {class: "quiet"}));
      if (each.never_arrived) cell.append(make("span", " " + number(each.never_arrived) + " never arrived", {class: "bad"}));
    }],
    [[each.oldest_s, each.heard_at], (cell) => cell.replaceChildren(...(known(each.oldest_s) && each.heard_at ? [age(each.heard_at - each.oldest_s)] : []))],
    [each.heard_at, (cell) => cell.replaceChildren(each.heard_at ? age(each.heard_at, "", " ago") : "never")],
    [[each.linked, each.linked_since, each.state], (cell) => {
      cell.className = each.state === "silent" ? "" : "nowrap";
      const [words, mark] = each.linked === true ? asHeard(each, "up") : [each.linked === false ? "down" : "unknown", "warn"];
      cell.replaceChildren(make("span", words, {class: mark}));
      if (each.linked_since && known(each.linked) && each.state !== "silent") cell.append(" ", age(each.linked_since));
    }],
    [each.version, (cell) => fill(cell, each.version || "")],
    [[each.alerts, each.more_alerts], (cell) => {
      cell.className = "wide";
      cell.replaceChildren(...(each.alerts || []).map((alert) => make("div", alert.text, {class: SEVERITIES[alert.severity] || "quiet"})));
      if (each.more_alerts) cell.append(make("div", "and " + each.more_alerts + " more", {class: "quiet"}));
    }],
  ];
}
function box(name) {
  const node = make("input", null, {type: "checkbox", class: "choose", "aria-label": "Choose " + name});
  node.checked = bulk.has(name);
  node.addEventListener("change", () => bulk.choose([name], node.checked));
  return node;
}
bulk.watch(() => { for (const [name, {node}] of nodes) { const found = node.querySelector(".choose"); if (found) found.checked = bulk.has(name); } });
$("bulk-page").addEventListener("click", () => { if (page) bulk.choose(page.rows.map((each) => each.name), true); });
const filters = () => { const {page, size, sort, descending, ...found} = parametersOf(asked); return found; };
$("bulk-all").addEventListener("click", () => bulk.chooseAll(filters()));
function update(each) {
  let row = nodes.get(each.name);
  if (!row) {
    const node = make("tr", null, {role: "row"});
    COLUMNS.forEach(([, label], place) => node.append(make(place ? "td" : "th", null, place ? {role: "cell", "data-label": label} : {role: "rowheader", scope: "row"})));
    row = {node, keys: []};
    nodes.set(each.name, row);
  }
  cells(each).forEach(([content, into], place) => {
    const key = JSON.stringify(content) || "";
    if (row.keys[place] === key) return;
    row.keys[place] = key;
    into(row.node.children[place]);
  });
}

export function changed(event) {
  if (event.totals) totals = event.totals;
  if (!active) return;
  states();
  if (!page) return;
  const seen = new Map(page.rows.map((each, place) => [each.name, place]));
  for (const row of event.rows || []) if (seen.has(row.name)) { page.rows[seen.get(row.name)] = row; update(row); }
  // The order, the counts and who is on the page follow a little later: a question costs more than an event.
  if (event.reload || event.revision > revision) due = true;
}
setInterval(() => { if (due && active && !document.hidden && Date.now() >= next_at) { due = false; load(); } }, CHECK_MS);

export function enter(parameters) {
  active = true;
  asked = read(parameters);
  draw();
  bulk.draw();
  // A group's page leads here with all of its devices chosen.
  if (parameters.get("choose") === "all" && bulk.offered()) { bulk.clear(); $("bulk").open = true; bulk.chooseAll(filters()); history.replaceState(null, "", address()); }
  load();
}
export function leave() { active = false; }
export const resume = () => { if (active) load(); };
export function reset() { bulk.clear(); page = null; totals = null; nodes.clear(); forget("states", "chosen", "heads", "alert", "labels"); $("rows").replaceChildren(); }

let typing = 0;
$("sort").replaceChildren(...SORTS.map(([value, words]) => make("option", words.toLowerCase(), {value})));
$("text").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => ask({text: $("text").value.trim()}, {replace: true}), TYPING_MS); });
$("filters").addEventListener("submit", (event) => { event.preventDefault(); addLabel(); });
function addLabel() {
  const label = $("label").value.trim().toLowerCase();
  $("label").value = "";
  if (label && !asked.labels.includes(label)) ask({labels: [...asked.labels, label]});
}
$("label").addEventListener("change", addLabel);
$("alert").addEventListener("change", () => ask({alerts: $("alert").value ? [$("alert").value] : []}));
$("sort").addEventListener("change", () => ask({sort: $("sort").value, descending: DESCENDING.has($("sort").value) ? "true" : ""}));
$("order").addEventListener("change", () => ask({descending: $("order").value}));
$("size").addEventListener("change", () => ask({size: Number($("size").value)}));
const turn = (id, to) => $(id).addEventListener("click", () => { if ($(id).getAttribute("aria-disabled") !== "true") { ask({page: to()}, {keepPage: true}); $("list-head").scrollIntoView(); speak("Page " + (asked.page + 1)); } });
turn("first-page", () => 0);
turn("previous-page", () => asked.page - 1);
turn("next-page", () => asked.page + 1);
turn("last-page", () => Math.max(0, Math.ceil(page.total / asked.size) - 1));
