// Releases on their way through groups of devices.
import {$, heads, line, make, moment, nothing, number, setText, visible} from "./text.js";
import {run} from "./orders.js";
import * as service from "./service.js";

const COLUMNS = ["Ring", "Open since", "Waits", "Devices", "Heard", "Upgraded", "No link", "Worse"], AGAIN_MS = 5000;
const KINDS = {running: "good", halted: "bad", done: "quiet", "rolled back": "warn"}, UNITS = {s: 1, m: 60, h: 3600, d: 86400};
let active = false, asking = 0;

const told = (words, kind) => { $("rollouts-outcome").className = kind; setText($("rollouts-outcome"), words); };
const wait = (seconds) => seconds % 86400 === 0 && seconds ? seconds / 86400 + " d" : seconds % 3600 === 0 && seconds ? seconds / 3600 + " h" : seconds % 60 === 0 && seconds ? seconds / 60 + " min" : seconds + " s";
function ring(rollout, each, place) {
  const opened = (rollout.opened || [])[place], worse = Object.entries(each.worse);
  return line(COLUMNS, [
    (cell) => cell.append(make("a", each.group, {href: "#/group/" + encodeURIComponent(each.group)})), opened ? moment(opened.at) : "not open", wait(rollout.rings[place].wait_s),
    number(each.devices), number(each.heard), number(each.upgraded) + (opened && opened.reached_at ? ", enough since " + moment(opened.reached_at) : ""), each.unlinked.length ? [each.unlinked.join(", "), "wide warn"] : "0",
    worse.length ? (cell) => { cell.className = "wide"; cell.append(...worse.map(([name, why]) => { const node = make("div", null, {class: "bad"}); node.append(make("a", name, {href: "#/device/" + encodeURIComponent(name)}), ": " + visible(why)); return node; })); } : "0"]);
}
function steer(name, words, order, danger) {
  const button = make("button", words, {type: "button", "data-do": order.do, "aria-label": words + ": " + name, ...(danger ? {class: "bad"} : {})});
  button.addEventListener("click", () => {
    const asked = prompt(words + " " + name + ": why?", "");
    if (asked === null) return;
    let version = "";
    if (order.do === "back") { version = prompt("Roll back to which version? A package of it must be signed as the way back.", ""); if (!version) return; }
    run(button, async () => { const said = await service.order("rollout", {rollout: name, ...order, ...(version ? {version} : {}), reason: asked}); await load(); return said; }, told);
  });
  return button;
}
function part({name, rollout, rings}) {
  const state = rollout.state || "running", node = make("article", null, {class: "card rollout"}), head = make("h3", name + ": " + rollout.version + " "), table = make("table", null, {class: "stack", role: "table"});
  head.append(make("span", state, {class: KINDS[state] || "quiet"}));
  const top = make("tr", null, {role: "row"}), thead = make("thead", null, {role: "rowgroup"}), body = make("tbody", null, {role: "rowgroup"}), scroll = make("div", null, {class: "scroll"});
  heads(top, COLUMNS);
  thead.append(top);
  body.append(...rings.map((each, place) => ring(rollout, each, place)));
  table.append(thead, body);
  table.setAttribute("aria-label", "Rings of " + name);
  scroll.append(table);
  node.append(head, make("p", [rollout.reason, "Started " + moment(rollout.started_at) + (rollout.by ? ", last changed by " + rollout.by : "") + "."].filter(Boolean).join(" · "), {class: state === "halted" ? "bad" : "quiet"}), scroll);
  if (service.may("rollout")) {
    const buttons = make("p");
    if (state === "running") buttons.append(steer(name, "Halt", {do: "halt"}), " ");
    if (state === "halted") buttons.append(steer(name, "Resume", {do: "resume"}), " ");
    if (state !== "rolled back") buttons.append(steer(name, "Roll back", {do: "back"}, true));
    node.append(buttons);
  }
  return node;
}
async function load() {
  const mine = asking += 1;
  let found;
  try { found = (await service.get("/api/rollouts")).rollouts; }
  catch (error) { if (error.status !== 401 && mine === asking) setText($("rollouts-told"), "Not read: " + error.message); return; }
  if (mine !== asking || !active) return;
  setText($("rollouts-told"), found.length ? "" : "There are no rollouts.");
  const focused = document.activeElement && $("rollouts").contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : "";
  $("rollouts").replaceChildren(...found.map(part));
  if (focused) { const again = [...$("rollouts").querySelectorAll("button")].find((each) => each.getAttribute("aria-label") === focused); if (again) again.focus({preventScroll: true}); }
}
function rings(text) {
  return text.split(/[\s,]+/).filter(Boolean).map((each) => {
    const [group, time = "0s"] = each.split(":"), found = /^(\d{1,9})([smhd])$/.exec(time);
    if (!found) throw new Error(each + ": expected GROUP:WAIT, as in canary:24h");
    return {group, wait_s: Number(found[1]) * UNITS[found[2]]};
  });
}
$("rollout-new").addEventListener("submit", (event) => {
  event.preventDefault();
  run($("rollout-new").querySelector("button"), async () => {
    const said = await service.order("rollout", {rollout: $("rollout-name").value.trim(), do: "start", version: $("rollout-version").value.trim(), rings: rings($("rollout-rings").value), reason: $("rollout-reason").value.trim()});
    for (const id of ["rollout-name", "rollout-version", "rollout-rings", "rollout-reason"]) $(id).value = "";
    await load();
    return said;
  }, told);
});
setInterval(() => { if (active && !document.hidden) load(); }, AGAIN_MS);
export function enter() { active = true; told("", ""); $("rollout-new").hidden = !service.may("rollout"); load(); }
export function leave() { active = false; }
