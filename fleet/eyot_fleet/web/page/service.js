// The service: questions, orders, and the stream of events.
const TIMEOUT_MS = 20000, ORDER_TIMEOUT_MS = 90000;
export let session = null;
const watchers = {session: [], event: [], silent: []};
export const on = (what, watcher) => watchers[what].push(watcher);
const tell = (what, ...told) => { for (const each of watchers[what]) each(...told); };

export class Refusal extends Error {
  constructor(status, words) { super(words); this.status = status; }
}
async function answered(path, options, timeout) {
  let answer;
  try {
    answer = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(timeout), ...options});
  } catch {
    throw new Refusal(0, "the service does not answer");
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 401 && session && session.user && path !== "/api/login") ended();
  throw new Refusal(answer.status, told.error || "the service answers " + answer.status);
}
export const get = (path, parameters) => answered(parameters ? path + "?" + new URLSearchParams(parameters) : path, {}, TIMEOUT_MS);
export function post(path, body) {
  const headers = {"Content-Type": "application/json"};
  if (session && session.token) headers["X-Eyot-Token"] = session.token;
  return answered(path, {method: "POST", headers, body: JSON.stringify(body)}, ORDER_TIMEOUT_MS);
}
export const order = async (name, body) => (await post("/api/actions/" + name, body)).done;
export const may = (action) => Boolean(session && session.actions.includes(action));

function take(found, why) { session = found; tell("session", found, why); }
export async function look(why) { take(await get("/api/session"), why); }
export async function login(order) { take(await post("/api/login", order)); }
export async function logout() { close(); take(await post("/api/logout", {})); }
let ending = false;
async function ended() {
  if (ending) return;
  ending = true;
  close();
  try { await look("ended"); } catch { take({...session, user: null, actions: [], token: ""}, "ended"); }
  finally { ending = false; }
}

let source = null;
export let feed = "";
export function open() {
  if (source) return;
  source = new EventSource("/api/events");
  source.addEventListener("begin", (event) => { feed = JSON.parse(event.data).feed; tell("event", "begin"); });
  source.addEventListener("change", (event) => tell("event", "change", JSON.parse(event.data)));
  source.addEventListener("ended", ended);
  source.addEventListener("error", () => {
    if (!source) return;
    feed = "";
    tell("silent");
    // The browser dials again after an interruption, but not after a refusal.
    if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(again, 3000); }
  });
}
async function again() {
  if (source || !session || !session.user) return;
  try { await look(); } catch { setTimeout(again, 3000); return; }
  if (session.user) open();
}
export function close() {
  if (source) source.close();
  source = null;
  feed = "";
}
