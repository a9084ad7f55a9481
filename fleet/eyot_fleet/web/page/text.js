// Nodes, and figures as text. Everything that a device, its operator or a user can name is set as text, never as markup.
// Signs that are invisible, or turn the direction of writing, would forge what stands beside them: they are shown escaped.
const TEXT_MAX = 1000;
const HIDDEN = /(?!\n)[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const escaped = (sign) => { const code = sign.codePointAt(0); return code > 0xffff ? "\\U" + code.toString(16).padStart(8, "0") : "\\u" + code.toString(16).padStart(4, "0"); };
export function visible(value, most = TEXT_MAX) {
  const text = value === null || value === undefined ? "" : String(value);
  return (text.length > most ? text.slice(0, most - 1) + "…" : text).replace(HIDDEN, escaped);
}
export const $ = (id) => document.getElementById(id);

export function make(tag, content, attributes) {
  const node = document.createElement(tag);
  if (content !== undefined && content !== null) node.textContent = visible(content, tag === "pre" ? Infinity : TEXT_MAX);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  return node;
}
export function draw(tag, attributes, content) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (content !== undefined) node.textContent = visible(content);
  return node;
}
export function setText(node, value) { const shown = visible(value); if (node.textContent !== shown) node.textContent = shown; }

// A part is drawn again only when its content has changed: focus and selection stay where they are.
const drawn = new Map();
export function show(node, content, nodes) {
  const key = JSON.stringify(content);
  if (drawn.get(node.id) === key) return;
  drawn.set(node.id, key);
  node.replaceChildren(...nodes());
}
export function forget(...ids) { for (const id of ids) drawn.delete(id); }

// The service's clock, in seconds: that of the browser may be wrong.
let ahead_s = 0;
export const setNow = (now) => { ahead_s = now - Date.now() / 1000; };
export const now = () => Date.now() / 1000 + ahead_s;

export const known = (value) => value !== null && value !== undefined;
export const number = (value) => known(value) ? value.toLocaleString("en") : "unknown";
export const plural = (value, noun) => number(value) + " " + noun + (value === 1 ? "" : "s");
export function size(bytes) {
  if (!known(bytes)) return "unknown";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return (unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)) + "\u00a0" + units[unit];
}
export function span(seconds) {
  if (!known(seconds)) return "unknown";
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= length) return Math.floor(seconds / length) + "\u00a0" + unit;
  return Math.max(0, Math.floor(seconds)) + "\u00a0s";
}
// What a device said last is no news of a device that is silent.
export const asHeard = (each, words) => each.state === "silent" ? [words + " when last heard", "warn"] : [words, "good"];
export const moment = (at) => known(at) ? new Date(at * 1000).toLocaleString([], {dateStyle: "medium", timeStyle: "medium"}) : "unknown";
export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit"});

// An age that grows: `at` is when it was 0.
export function age(at, before = "", after = "") {
  const node = make("time", before + span(now() - at) + after, {datetime: new Date(at * 1000).toISOString(), title: moment(at)});
  node.dataset.at = at; node.dataset.before = before; node.dataset.after = after;
  return node;
}
export function growAges() {
  for (const node of document.querySelectorAll("time[data-at]")) setText(node, node.dataset.before + span(now() - Number(node.dataset.at)) + node.dataset.after);
}

export function heads(row, labels) {
  row.replaceChildren(...labels.map((label) => make("th", label, {scope: "col", role: "columnheader"})));
}
// One row of a table; a cell is a text, [text, class], or a function that fills the cell.
export function line(labels, cells) {
  const row = make("tr", null, {role: "row"});
  cells.forEach((cell, place) => {
    const attributes = place ? {role: "cell", "data-label": labels[place]} : {role: "rowheader", scope: "row"};
    const node = make(place ? "td" : "th", null, attributes);
    fill(node, cell);
    row.append(node);
  });
  return row;
}
export function fill(node, cell) {
  if (typeof cell === "function") { cell(node); return; }
  const [value, kind] = Array.isArray(cell) ? cell : [cell, ""];
  node.textContent = visible(value);
  if (kind) node.className = kind; else node.removeAttribute("class");
}
export function nothing(columns, words) {
  const row = make("tr", null, {role: "row"});
  row.append(make("td", words, {colspan: columns, role: "cell", "data-label": "", class: "quiet"}));
  return row;
}
export function pairs(list) {
  const node = make("dl");
  for (const [name, value, kind] of list) {
    const found = make("dd", null, kind ? {class: kind} : {});
    if (value instanceof Node) found.append(value); else found.textContent = visible(value);
    node.append(make("dt", name), found);
  }
  return node;
}
export function card(title, ...content) {
  const node = make("article", null, {class: "card"});
  node.append(make("h4", title), ...content);
  return node;
}
// Heard by screen readers; the same words twice are heard twice.
export function speak(words) {
  $("spoken").textContent = "";
  setTimeout(() => { $("spoken").textContent = visible(words); }, 50);
}
export const KINDS = {failing: "bad", incomplete: "bad", silent: "bad", "not linked": "warn", unknown: "warn", behind: "warn", new: "quiet", revoked: "quiet", synced: "good"};
export const STATES = Object.keys(KINDS);
export const SEVERITIES = {critical: "bad", warning: "warn", info: "quiet"};
export const kindOf = (state) => KINDS[state] || "quiet";
export function stateMark(state) {
  const node = make("span", null, {class: kindOf(state)});
  node.append(make("span", null, {class: "dot " + kindOf(state), "aria-hidden": "true"}), state);
  return node;
}
