// Groups of devices by labels, and one group with what is desired of it.
import {$, STATES, card, heads, kindOf, line, make, nothing, number, pairs, plural, setText, stateMark} from "./text.js";
import {run} from "./orders.js";
import * as service from "./service.js";

const COLUMNS = ["Group", "Worst", "Devices", "States", "Backlog", "Alerts", "Not applied"];
const AGAIN_MS = 10000;
let shown = null, revision = 0, asking = 0;

const devices = (group) => "#/?" + new URLSearchParams(group.labels.length ? {labels: group.labels.join("\n")} : {});
function states(group) {
  return (cell) => cell.append(...STATES.filter((each) => group.states[each]).map((each) => {
    const node = make("span", null, {class: "label"});
    node.append(make("span", null, {class: "dot " + kindOf(each), "aria-hidden": "true"}), each + " " + number(group.states[each]));
    return node;
  }));
}
const row = (group) => line(COLUMNS, [
  (cell) => cell.append(make("a", group.name, {href: "#/group/" + encodeURIComponent(group.name)}), make("br"), ...(group.labels.length ? group.labels : ["every device"]).map((label) => make("span", label, {class: "label"}))),
  (cell) => cell.append(group.worst ? stateMark(group.worst) : "no devices"),
  (cell) => cell.append(make("a", number(group.devices), {href: devices(group), "aria-label": "Show the " + plural(group.devices, "device") + " of " + group.name})),
  states(group), number(group.backlog), group.alerted ? [number(group.alerted), "warn"] : "0", group.not_applied ? [number(group.not_applied), "warn"] : "0"]);

async function load() {
  const wanted = shown, mine = asking += 1;
  let found;
  try { found = (await service.get("/api/groups")).groups; }
  catch (error) { if (error.status !== 401 && mine === asking) setText($("groups-told"), "Not read: " + error.message); return; }
  if (mine !== asking || wanted !== shown) return;
  if (wanted === "") {
    setText($("groups-told"), plural(found.length, "group") + ", the one that needs somebody most first.");
    const focused = document.activeElement && $("groups").contains(document.activeElement) ? document.activeElement.getAttribute("href") : "";
    $("groups").replaceChildren(...(found.length ? found.map(row) : [nothing(COLUMNS.length, "There are no groups yet.")]));
    if (focused) { const again = [...$("groups").querySelectorAll("a")].find((each) => each.getAttribute("href") === focused); if (again) again.focus({preventScroll: true}); }
    return;
  }
  const group = found.find((each) => each.name === wanted);
  $("group-devices").hidden = $("group-act").hidden = !group;
  if (!group) { $("group-facts").replaceChildren(make("p", wanted ? "There is no such group." : "", {class: "quiet"})); return; }
  $("group-devices").href = $("group-act").href = devices(group);
  if (service.may("ask") || service.may("label")) $("group-act").href = devices(group) + (group.labels.length ? "&" : "") + "choose=all"; else $("group-act").hidden = true;
  const marks = make("span");
  states(group)(marks);
  const facts = pairs([["Labels", group.labels.join(" ") || "every device"], ["Priority", String(group.priority)], ["Devices", number(group.devices)], ["Worst", group.worst ? stateMark(group.worst) : "no devices"], ["States", marks],
    ["Messages behind", number(group.backlog)], ["Never arrived", number(group.never_arrived)], ["With an alert", number(group.alerted)], ["Not applied", number(group.not_applied)]]);
  const settings = make("pre", JSON.stringify(group.settings, null, 2));
  $("group-facts").replaceChildren(card("State", facts), card("Desired settings", settings));
}
async function stored() {
  if (!service.may("configure")) return;
  const wanted = shown;
  if (wanted === null) return;
  if (wanted === "") { revision = 0; return; }
  try {
    const found = await service.get("/api/groups/" + encodeURIComponent(wanted));
    if (wanted !== shown) return;
    revision = found.revision;
    const group = found.group || {};
    $("group-labels").value = (group.labels || []).join(" ");
    $("group-priority").value = String(group.priority || 0);
    $("group-settings").value = JSON.stringify(group.settings || {}, null, 2);
  } catch (error) { setText($("group-outcome"), "Not read: " + error.message); }
}
const told = (words, kind) => { $("group-outcome").className = kind; setText($("group-outcome"), words); };
function order(remove) {
  let settings;
  try { settings = JSON.parse($("group-settings").value || "{}"); } catch { throw new Error("the settings are no JSON"); }
  return {group: shown, labels: $("group-labels").value.toLowerCase().split(/\s+/).filter(Boolean), priority: Number($("group-priority").value) || 0, settings, revision, remove};
}
$("order-group").addEventListener("submit", (event) => { event.preventDefault(); run($("order-group").querySelector("button"), async () => { const words = await service.order("group", order(false)); await stored(); await load(); return words; }, told); });
$("group-remove").addEventListener("click", () => { if (confirm("Remove the group " + shown + "? Its devices lose its settings.")) run($("group-remove"), async () => { const words = await service.order("group", order(true)); await stored(); await load(); return words; }, told); });
$("group-new").addEventListener("submit", (event) => { event.preventDefault(); const name = $("group-name").value.trim(); $("group-name").value = ""; if (name) location.hash = "#/group/" + encodeURIComponent(name); });
heads($("groups-heads"), COLUMNS);
setInterval(() => { if (shown !== null && !document.hidden) load(); }, AGAIN_MS);

export function enter(name) {
  shown = name;
  told("", "");
  $("group-new").hidden = $("order-group").hidden = !service.may("configure");
  if (name) { setText($("group-head"), "Group " + name); $("group-facts").replaceChildren(); for (const id of ["group-labels", "group-settings"]) $(id).value = ""; $("group-priority").value = "0"; }
  load();
  stored();
}
export function leave() { shown = null; asking += 1; }
