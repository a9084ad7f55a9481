// What was done (the audit stream), and the tokens that can still be used.
import {$, heads, line, make, moment, nothing, setText} from "./text.js";
import {run} from "./orders.js";
import * as service from "./service.js";

const LINES = ["When", "Who", "From", "Action", "Device", "Detail", "Outcome"];
const TOKENS = ["For", "Left", "Valid until", "Id", ""];
const KINDS = {done: "good", refused: "warn", failed: "bad"};
const row = (each) => line(LINES, [
  moment(each.at), each.actor + (each.role ? " (" + each.role + ", " + each.method + ")" : ""), each.address || "", each.action,
  each.device ? (cell) => cell.append(make("a", each.device, {href: "#/device/" + encodeURIComponent(each.device)})) : "", [each.detail || "", "wide"], [each.outcome, KINDS[each.outcome] || "quiet"]]);

async function lines(body, parameters) {
  try {
    const told = (await service.get("/api/audit", parameters)).lines;
    body.replaceChildren(...(told.length ? told.map(row) : [nothing(LINES.length, "Nothing yet.")]));
  } catch (error) { if (error.status !== 401) body.replaceChildren(nothing(LINES.length, "Not read: " + error.message)); }
}
export const device = (name) => lines($("device-audit"), {device: name, count: 20});
export const audit = () => lines($("audit"), {count: 200});

const told = (words, kind) => { $("tokens-outcome").className = kind; setText($("tokens-outcome"), words); };
export async function tokens() {
  try {
    const found = await service.order("tokens", {});
    $("tokens").replaceChildren(...(found.length ? found.map((each) => line(TOKENS, [
      String(each.names || ""), String(each.left ?? ""), each.valid_until ? moment(each.valid_until) : "", [String(each.id || ""), "wide"],
      (cell) => {
        const button = make("button", "Withdraw", {type: "button", "aria-label": "Withdraw the token for " + each.names});
        button.addEventListener("click", () => run(button, async () => { const words = await service.order("withdraw", {token: String(each.id)}); await tokens(); $("tokens-head").focus(); return words; }, told));
        cell.append(button);
      }])) : [nothing(TOKENS.length, "No token can be used now.")]));
  } catch (error) { if (error.status !== 401) $("tokens").replaceChildren(nothing(TOKENS.length, "Not read: " + error.message)); }
}
for (const id of ["audit-heads", "device-audit-heads"]) heads($(id), LINES);
heads($("tokens-heads"), TOKENS);
$("audit-again").addEventListener("click", audit);
