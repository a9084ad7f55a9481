// One device: its alerts, its day, its figures and streams.
import {$, SEVERITIES, age, asHeard, card, forget, heads, known, line, make, moment, nothing, now, number, pairs, plural, setNow, setText, show, size, span, stateMark, visible} from "./text.js";
import {chart} from "./chart.js";
import * as orders from "./orders.js";
import * as records from "./records.js";
import * as service from "./service.js";

const AGAIN_MS = 60000;
const STREAMS = ["Stream", "Stored", "Downstream", "Confirmed", "Backlog", "Oldest", "ETA", "Never arrived", "Error"];
const PARTS = ["device-state", "device-labels", "device-alerts", "day", "facts", "streams", "device-audit"];
let name = "", asking = 0, found = null;

export async function load() {
  const wanted = name, number = asking += 1;
  let told;
  try {
    told = await service.get("/api/devices/" + encodeURIComponent(wanted), service.feed ? {feed: service.feed} : undefined);
  } catch (error) {
    if (number === asking && name === wanted && error.status !== 401) setText($("device-state"), error.status === 404 ? "There is no such device." : "Not read: " + error.message);
    if (error.status === 404) forget("device-state");
    return;
  }
  if (number !== asking || name !== wanted) return;
  setNow(told.now);
  found = told;
  render();
}
function render() {
  const each = found.device;
  show($("device-state"), [each.state, each.heard_at], () => [stateMark(each.state), ". ", ...(each.heard_at ? [age(each.heard_at, "Last heard ", " ago")] : ["Never heard."])]);
  show($("device-labels"), each.labels || [], () => (each.labels || []).map((label) => make("li", label, {class: "chip"})));
  const alerts = each.alerts || [];
  $("device-alerts-part").hidden = !alerts.length;
  show($("device-alerts"), alerts, () => alerts.map((alert) => {
    const item = make("li");
    item.append(make("strong", alert.severity + ": ", {class: SEVERITIES[alert.severity] || "quiet"}), visible(alert.text) + " ", age(alert.since, "(since ", ")"));
    if (alert.remedy) item.append(make("span", "Remedy: " + alert.remedy, {class: "remedy"}));
    return item;
  }));
  const oldest = each.backlog === 0 ? 0 : known(each.oldest_s) && each.heard_at ? each.oldest_s + now() - each.heard_at : each.oldest_s;
  show($("day"), [found.day, each.backlog, each.oldest_s], () => [chart(name, found.day, "backlog", "Backlog, messages", each.backlog), chart(name, found.day, "oldest_s", "Oldest unconfirmed message", oldest)]);
  facts(each);
  const streams = each.streams || [];
  show($("streams"), streams, () => streams.length ? streams.map((stream) => line(STREAMS, [
    stream.name + (stream.account === "$G" ? "" : ", account " + stream.account), number(stream.stored), stream.downstream || "none",
    known(stream.confirmed_seq) ? number(stream.confirmed_seq) + " of " + number(stream.last_seq) : "", known(stream.backlog) ? [number(stream.backlog) + (stream.backlog ? " (" + size(stream.backlog_bytes) + ")" : ""), stream.backlog ? "warn" : "good"] : "",
    known(stream.oldest_s) ? span(stream.oldest_s) : "", known(stream.eta_s) ? span(stream.eta_s) : "", stream.never_arrived ? [number(stream.never_arrived), "bad"] : "", [stream.error || "", "wide"]])) : [nothing(STREAMS.length, "The device has not reported its streams.")]);
  setText($("streams-more"), each.streams_left_out ? plural(each.streams_left_out, "more stream") + ": ask the device for its sync." : "");
}
function until(at, words) { return known(at) ? [[words, moment(at) + (at < now() ? " (expired)" : " (in " + span(at - now()) + ")"), at < now() ? "bad" : at - now() < 7 * 86400 ? "warn" : ""]] : []; }
function facts(each) {
  const link = [["Link", ...(each.linked === true ? asHeard(each, "up") : [each.linked === false ? "down" : "unknown", "warn"])]];
  if (known(each.linked_since) && each.state !== "silent") link.push(["Since", age(each.linked_since)]);
  if (known(each.rtt_ms)) link.push(["Round trip", each.rtt_ms.toFixed(1) + " ms"]);
  if (each.link_error) link.push(["Error", each.link_error, "bad"]);
  if (known(each.clock_offset_s)) link.push(["Clock", Math.abs(each.clock_offset_s) < 1 ? "right within a second" : span(Math.abs(each.clock_offset_s)) + (each.clock_offset_s > 0 ? " ahead" : " behind"), Math.abs(each.clock_offset_s) > 60 ? "bad" : "good"]);
  if (known(each.clock_synchronized)) link.push(["Its clock says", each.clock_synchronized ? "synchronized" : "not synchronized", each.clock_synchronized ? "good" : "warn"]);
  const data = [["Synced", ...(each.synced ? asHeard(each, "yes") : ["no", "warn"])], ["Backlog", number(each.backlog) + (each.backlog ? " (" + size(each.backlog_bytes) + ")" : "")]];
  if (known(each.oldest_s) && each.heard_at) data.push(["Oldest", age(each.heard_at - each.oldest_s)]);
  if (known(each.eta_s)) data.push(["ETA", span(each.eta_s)]);
  if (each.never_arrived) data.push(["Never arrived", number(each.never_arrived), "bad"]);
  data.push(["Stored", number(each.messages || 0)]);
  const machine = [["Version", each.version || "unknown"]];
  if (each.domain) machine.push(["Domain", each.domain]);
  if (known(each.uptime_s)) machine.push(["Up for", span(each.uptime_s)]);
  if (each.store_error) machine.push(["Store", each.store_error, "bad"]);
  if (known(each.disk_free_bytes)) machine.push(["Free disk", size(each.disk_free_bytes) + (each.disk_total_bytes ? " of " + size(each.disk_total_bytes) : ""), each.disk_total_bytes && each.disk_free_bytes < each.disk_total_bytes / 10 ? "bad" : ""]);
  if (known(each.flash_used_percent)) machine.push(["Flash life used", each.flash_used_percent + " %", each.flash_used_percent >= 80 ? "bad" : ""]);
  if (known(each.flash_lifetime_days)) machine.push(["Flash lasts", each.flash_lifetime_days >= 3650 ? "over 10 years" : plural(each.flash_lifetime_days, "day")]);
  if (known(each.memory_bytes)) machine.push(["Memory", size(each.memory_bytes) + (known(each.memory_free_bytes) ? ", " + size(each.memory_free_bytes) + " free" : "")]);
  const trust = [...until(each.certificate_expires, "Certificate"), ...until(each.token_expires, "Token")];
  if (known(each.enrolled_at)) trust.push(["Enrolled", moment(each.enrolled_at)]);
  if (known(each.revoked_at)) trust.push(["Revoked", moment(each.revoked_at), "bad"]);
  const config = each.config || {};
  trust.push(["Desired", config.desired ? config.desired.slice(0, 12) : "nothing"]);
  if (config.reported || config.outcome) trust.push(["Applied", (config.outcome || "unknown") + (config.reported ? " " + config.reported.slice(0, 12) : ""), config.outcome === "applied" ? "good" : "bad"]);
  if (config.error) trust.push(["Refused because", config.error, "bad"]);
  const reported = each.reported_at ? [["Its figures are of", (Number.isNaN(Date.parse(each.reported_at)) ? each.reported_at : moment(Date.parse(each.reported_at) / 1000)) + " (its clock)"]] : [];
  const simple = [link, data, machine, trust].map((list) => list.map(([word, value]) => [word, value instanceof Node ? value.dataset.at : value]));
  show($("facts"), simple, () => [card("Link and clock", pairs(link)), card("Data", pairs([...data, ...reported])), card("Machine", pairs(machine)), card("Trust and configuration", pairs(trust))]);
}
export function changed(event) {
  if (name && ((event.rows || []).some((row) => row.name === name) || event.reload || (event.gone || []).includes(name))) load();
}
export const resume = () => { if (name) load(); };
export function enter(wanted) {
  name = wanted;
  found = null;
  forget(...PARTS);
  for (const id of PARTS) $(id).replaceChildren();
  $("device-alerts-part").hidden = true;
  setText($("device-head"), wanted);
  setText($("device-state"), "Reading…");
  load();
  orders.enter(wanted, () => { load(); records.device(wanted); });
  records.device(wanted);
}
export function leave() { name = ""; orders.leave(); }
export const title = () => name;
setInterval(() => { if (name && !document.hidden) load(); }, AGAIN_MS);
heads($("streams-heads"), STREAMS);
