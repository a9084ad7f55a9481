// Which view is shown, who is logged in, and how old the figures are.
import {$, clock, growAges, now, number, plural, setNow, setText, span, speak, visible} from "./text.js";
import * as device from "./device.js";
import * as groups from "./groups.js";
import * as list from "./list.js";
import * as orders from "./orders.js";
import * as records from "./records.js";
import * as rollouts from "./rollouts.js";
import * as service from "./service.js";

const AGES_MS = 5000, SILENT_S = 35;
const VIEWS = ["login", "list", "device", "groups", "group", "rollouts", "audit", "tokens"];
const LOGINS = {
  refused: "The login provider did not accept this login.", stale: "This login was not begun in this browser, or took too long: begin again.",
  role: "You are logged in at the provider, but have no role here: ask an operator of the fleet.", limited: "Too many failed logins: try again in a minute.",
  unavailable: "The login provider cannot be reached: try again later.",
};
let view = "", told_at = 0, hub = null, totals = null, lost = false, said = "", remembered = "";

function display(wanted, focus) {
  if (view === "list" && wanted !== "list") list.leave();
  if (view === "device") device.leave();
  if (view === "groups" || view === "group") groups.leave();
  if (view === "rollouts") rollouts.leave();
  view = wanted;
  for (const each of VIEWS) $(each + "-view").hidden = each !== wanted;
  for (const link of $("nav").querySelectorAll("a")) if (link.dataset.view === wanted || (wanted === "group" && link.dataset.view === "groups")) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  if (focus) $(wanted === "list" ? "main" : wanted + "-head").focus({preventScroll: true});
}
function route(focus = true) {
  if (!service.session) return;
  const [path, query] = location.hash.replace(/^#/, "").split("?"), parts = path.split("/").filter(Boolean);
  if (!service.session.user) {
    if (parts[0] === "login") setText($("login-told"), LOGINS[parts[1]] || "");
    else remembered = location.hash;
    display("login", false);
    document.title = "Fleet: log in";
    if ($("login").hidden) $("oidc-link").focus(); else $("login-user").select();
    return;
  }
  if (parts[0] === "main") return;  // the link that skips to the content
  if (focus && view) scrollTo(0, 0);
  if ((parts[0] === "device" || parts[0] === "group") && parts.length === 2) {
    let name;
    try { name = decodeURIComponent(parts[1]); } catch { name = parts[1]; }
    if (parts[0] === "group") { display("group", focus); groups.enter(name); document.title = visible(name) + " · Fleet"; return; }
    $("back").href = list.address();
    display("device", focus);
    device.enter(name);
    document.title = visible(name) + " · Fleet";
  } else if (parts[0] === "groups") { display("groups", focus); groups.enter(""); document.title = "Groups · Fleet"; }
  else if (parts[0] === "rollouts") { display("rollouts", focus); rollouts.enter(); document.title = "Rollouts · Fleet"; }
  else if (parts[0] === "audit") { display("audit", focus); records.audit(); document.title = "Audit · Fleet"; }
  else if (parts[0] === "tokens" && service.may("withdraw")) { display("tokens", focus); records.tokens(); document.title = "Tokens · Fleet"; }
  else { display("list", focus && view !== "list"); list.enter(new URLSearchParams(query || "")); document.title = "Fleet"; }
}
// The line at the top: what needs somebody, and whether all of it is known.
function headline() {
  let state = "quiet", words = "Reading…";
  const silent_s = told_at ? now() - told_at : 0;
  if (service.session && !service.session.user) words = "Log in to see the devices.";
  else if (lost || (told_at && silent_s > SILENT_S)) [state, words] = ["bad", "Cannot tell: the service has not answered since " + (told_at ? clock(told_at) : "this page was opened") + ". What is shown is as old."];
  else if (hub && !hub.connected) [state, words] = ["bad", "The service has lost the hub " + span(now() - hub.since) + " ago, at " + clock(hub.since) + ": what is shown is as of then" + (hub.error ? " (" + hub.error + ")." : ".")];
  else if (totals) {
    const states = totals.states, bad = ["failing", "incomplete", "silent"].reduce((sum, each) => sum + (states[each] || 0), 0), count = plural(totals.fleet, "device");
    const rest = (totals.fleet - (states.synced || 0) - (states.revoked || 0));
    if (bad) [state, words] = ["bad", number(bad) + " of " + count + (bad === 1 ? " needs" : " need") + " attention."];
    else if (rest) [state, words] = ["warn", number(rest) + " of " + count + (rest === 1 ? " is" : " are") + " not synced."];
    else [state, words] = ["good", totals.fleet ? "All " + count + " are synced." : "There are no devices yet."];
  }
  $("state").dataset.state = state;
  setText($("state"), words);
  const spoken = state + words.replace(/\d[\d.,:]*/g, "");
  if (said && said !== spoken) speak(words);
  said = spoken;
}
service.on("session", (session, why) => {
  const user = session.user;
  $("nav").hidden = !user;
  $("logout").hidden = !user;
  setText($("who"), user ? user + ", " + session.role : "");
  $("tokens-link").hidden = !service.may("withdraw");
  $("login").hidden = $("login-creds").hidden = !session.nats;
  $("login-oidc").hidden = !session.oidc;
  setText($("oidc-link"), session.oidc || "");
  $("login-closed").hidden = !session.insecure;
  orders.offer();
  if (user) {
    setText($("login-told"), "");
    service.open();
    if (view === "login" && (remembered || location.hash.startsWith("#/login"))) { history.replaceState(null, "", remembered || "#/"); remembered = ""; }
    if (view === "login" || !view) route(Boolean(view));
  } else if (view !== "login") {
    list.reset();
    totals = null; hub = null; told_at = 0;
    if (why === "ended") setText($("login-told"), "Your session has ended: log in again.");
    route();
  }
  headline();
});
service.on("event", (kind, event) => {
  if (kind === "begin") { lost = false; list.resume(); device.resume(); return; }
  setNow(event.now);
  told_at = event.now;
  lost = false;
  hub = event.hub;
  if (event.totals) totals = event.totals;
  list.changed(event);
  device.changed(event);
  headline();
});
service.on("silent", () => { lost = true; headline(); });

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = $("login").querySelector("button"), password = $("login-password").value;
  if (button.disabled) return;
  button.disabled = true;
  setText($("login-told"), "");
  $("login-password").value = "";
  try { await service.login({user: $("login-user").value, password}); }
  catch (error) { setText($("login-told"), "Not logged in: " + error.message + "."); $("login-password").focus(); }
  finally { button.disabled = false; }
});
$("login-creds").addEventListener("submit", async (event) => {
  event.preventDefault();
  const file = $("creds-file").files[0], button = $("login-creds").querySelector("button");
  if (!file || button.disabled) return;
  button.disabled = true;
  setText($("login-told"), "");
  try {
    if (file.size > 32768) throw new Error("that is no credentials file of a user");
    await service.login({creds: await file.text()});
  } catch (error) { setText($("login-told"), "Not logged in: " + error.message + "."); $("creds-file").focus(); }
  finally { button.disabled = false; $("login-creds").reset(); }
});
$("logout").addEventListener("submit", async (event) => {
  event.preventDefault();
  try { await service.logout(); } catch (error) { speak("Not logged out: " + error.message); }
});
$("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
addEventListener("hashchange", () => route());
document.addEventListener("visibilitychange", () => { if (!document.hidden) { growAges(); headline(); list.resume(); device.resume(); } });
setInterval(() => { growAges(); headline(); }, AGES_MS);
async function begin() {
  try { await service.look(); } catch (error) {
    $("state").dataset.state = "bad";
    setText($("state"), "Cannot tell: " + error.message + ". This page tries again.");
    setTimeout(begin, 3000);
  }
}
begin();
