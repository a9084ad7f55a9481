// What an operator may do to a device. One POST for each order; what came of it is said aloud.
import {$, forget, heads, line, make, nothing, number, pairs, setText, size, span, known} from "./text.js";
import * as service from "./service.js";

const ORDERS = ["ask", "connect", "label", "configure", "revoke", "forget"];
let name = "", done = () => {}, revision = 0;
function outcome(words, kind) { $("outcome").className = kind; setText($("outcome"), words); }

export async function run(button, act, told = outcome) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  told("Asking…", "quiet");
  try { told(await act(), "good"); }
  catch (error) { told("Not done: " + error.message, "bad"); }
  finally { button.removeAttribute("aria-disabled"); }
}
function on(id, act, then = () => {}) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    const device = name;
    run(event.submitter || $(id).querySelector("button"), async () => { const words = await act(device); if (device === name) { await then(); done(); } return words; });
  });
}
const table = (labels, rows, words) => {
  const node = make("table", null, {class: "stack", role: "table"}), head = make("tr", null, {role: "row"}), top = make("thead", null, {role: "rowgroup"}), body = make("tbody", null, {role: "rowgroup"});
  heads(head, labels);
  top.append(head);
  body.append(...(rows.length ? rows.map((cells) => line(labels, cells)) : [nothing(labels.length, words)]));
  node.append(top, body);
  return node;
};
const reports = {
  status(told) {
    const store = told.store;
    return [
      pairs([["Server", told.server_name], ["Version", told.version], ["Up for", span(told.uptime_s)], ...(store ? [["Store", store.error || "writes", store.error ? "bad" : "good"], ["Free disk", size(store.free_bytes)]] : [])]),
      make("h4", "Links"), table(["Link", "State", "Since", "Round trip", "Error and remedy"], told.links.map((each) => [each.name, [each.state, each.state === "up" ? "good" : "warn"], span(each.age_s), known(each.rtt_ms) ? each.rtt_ms.toFixed(1) + " ms" : "", [[each.waiting, each.state === "up" ? "" : each.last_error, each.remedy].filter(Boolean).join(": "), "wide"]]), "It has no links."),
      make("h4", "Streams"), table(["Stream", "Messages", "Bytes", "Last"], told.streams.map((each) => [each.name, number(each.messages), size(each.bytes), number(each.last_seq)]), "It has no streams."),
    ];
  },
  sync(told) {
    return [
      make("p", told.synced ? "Synced: every message that can still arrive is confirmed." : "Not synced.", {class: told.synced ? "good" : "warn"}),
      table(["Stream", "Downstream", "Confirmed", "Backlog", "Oldest", "ETA", "Why"], told.out.map((each) => [each.stream, (each.target ? each.target + " at " : "") + each.peer, each.uncertain ? ["unknown", "bad"] : number(each.confirmed_seq) + " of " + number(each.last_seq), [number(each.backlog), each.backlog ? "warn" : "good"], known(each.oldest_s) ? span(each.oldest_s) : "", known(each.eta_s) ? span(each.eta_s) : "", [[each.waiting, each.error, each.remedy].filter(Boolean).join(": "), "wide"]]), "Nothing elsewhere replicates its streams."),
    ];
  },
  doctor(told) {
    const kinds = {failure: "bad", warning: "warn", ok: "good", skipped: "quiet"};
    return [table(["Check", "Result", "Found", "Remedy"], told.map((each) => [each.name, [each.state, kinds[each.state] || ""], [each.detail || "", "wide"], [each.remedy || "", "wide"]]), "It has nothing to check.")];
  },
};
for (const button of document.querySelectorAll("#order-ask button")) button.addEventListener("click", () => {
  const report = button.dataset.report, device = name;
  run(button, async () => {
    const told = await service.order("ask", {device, report});
    if (device !== name) return "";
    $("answer").replaceChildren(...reports[report](told));
    setText($("answer-head"), button.textContent + " of " + device + ", " + new Date().toLocaleTimeString());
    $("answer-part").hidden = false;
    $("answer-head").focus();
    done();
    return device + " has answered.";
  });
});
on("order-connect", (device) => service.order("connect", {device, link: $("connect-link").value.trim()}));
on("order-label", (device) => service.order("label", {device, revision, labels: $("label-text").value.split(/\s+/).filter(Boolean).map((each) => each.toLowerCase())}), desired);
on("order-configure", async (device) => {
  let settings;
  try { settings = JSON.parse($("configure-text").value); } catch { throw new Error("that is no JSON"); }
  if (typeof settings !== "object" || settings === null || Array.isArray(settings)) throw new Error("a JSON object is expected");
  return service.order("configure", {device, settings, revision});
}, desired);
on("order-revoke", async (device) => {
  const words = await service.order("revoke", {device, sure: $("revoke-sure").value.trim()});
  $("revoke-sure").value = "";
  return words;
});
on("order-forget", async (device) => {
  const words = await service.order("forget", {device, sure: $("forget-sure").value.trim(), reason: $("forget-reason").value.trim()});
  $("forget-sure").value = $("forget-reason").value = "";
  return words;
});
async function desired() {
  const device = name;
  if (!device || !(service.may("configure") || service.may("label"))) return;
  try {
    const told = await service.get("/api/devices/" + encodeURIComponent(device) + "/desired");
    if (device !== name) return;
    revision = told.revision;
    $("label-text").value = told.labels.join(" ");
    $("configure-text").value = JSON.stringify(told.settings, null, 2);
    setText($("configure-state"), (revision ? "Revision " + revision + ". " : "") + "With its groups: " + (Object.keys(told.applies).length ? JSON.stringify(told.applies) : "nothing") + ".");
  } catch (error) { if (device === name) setText($("configure-state"), "Not read: " + error.message); }
}
$("configure-read").addEventListener("click", desired);

export function offer() {
  for (const action of ORDERS) $("order-" + action).hidden = !service.may(action);
  $("orders").hidden = !ORDERS.some(service.may);
}
export function enter(wanted, then) {
  name = wanted;
  done = then;
  revision = 0;
  outcome("", "");
  forget("answer");
  $("answer-part").hidden = true;
  for (const id of ["connect-link", "revoke-sure", "forget-sure", "forget-reason", "configure-text", "label-text"]) $(id).value = "";
  offer();
  desired();
}
export function leave() { name = ""; }
