// A driver of the JavaScript client: reads one command a line on stdin, answers with one line each.
import { connect, headers as makeHeaders, StringCodec } from "nats";
import { createInterface } from "node:readline";

const host = process.argv[2];
const codec = StringCodec();
const connections = new Map();
const subscriptions = new Map();
const last = new Map();
const violations = new Map();

function shown(msg) {
  const pairs = [];
  if (msg.headers) for (const [key, values] of msg.headers) for (const value of values) pairs.push(`${key}=${value}`);
  return `${msg.subject} ${msg.reply || "-"} ${codec.decode(msg.data) || "-"} ${pairs.sort().join(";") || "-"}`;
}

async function watch(name, nc) {
  for await (const status of nc.status()) {
    const text = `${status.data?.message ?? ""} ${status.permissionContext ? JSON.stringify(status.permissionContext) : ""} ${status.data}`;
    const found = /permissions violation for (publish|subscription) to \\?"([^"\\]+)/i.exec(text);
    if (found) violations.set(name, `${found[1].toLowerCase()} ${found[2]}`);
    else if (status.permissionContext)
      violations.set(name, `${status.permissionContext.operation} ${status.permissionContext.subject}`);
  }
}

// A queue of what a subscription got: the library's iterator cannot be asked with a timeout.
class Inbox {
  constructor(sub) {
    this.messages = [];
    this.waiting = null;
    (async () => {
      try {
        for await (const msg of sub) {
          if (this.waiting) { const wake = this.waiting; this.waiting = null; wake(msg); }
          else this.messages.push(msg);
        }
      } catch { /* the subscription was refused */ }
    })();
    this.sub = sub;
  }
  next(timeout) {
    if (this.messages.length) return Promise.resolve(this.messages.shift());
    return new Promise((resolve) => {
      const timer = setTimeout(() => { this.waiting = null; resolve(null); }, timeout);
      this.waiting = (msg) => { clearTimeout(timer); resolve(msg); };
    });
  }
}

async function run([command, ...rest]) {
  switch (command) {
    case "connect": {
      const [name, user, options] = rest;
      const wanted = options.split(",");
      const given = { servers: `nats://${host}`, reconnect: false, timeout: 5000, name: "scenario",
        noEcho: wanted.includes("no_echo"), verbose: wanted.includes("verbose"), pedantic: wanted.includes("pedantic") };
      if (user.startsWith("token:")) given.token = user.slice(6);
      else if (user !== "-") [given.user, given.pass] = user.split(":");
      try {
        const nc = await connect(given);
        connections.set(name, nc);
        watch(name, nc).catch(() => {});
        return "ok";
      } catch (error) {
        return /authorization/i.test(error.message + error.code) ? "authorization" : `error ${error.message}`;
      }
    }
    case "sub": {
      const [name, connection, subject, queue] = rest;
      subscriptions.set(name, new Inbox(connections.get(connection).subscribe(subject, queue === "-" ? {} : { queue })));
      return "ok";
    }
    case "unsub": {
      const most = Number(rest[1]);
      subscriptions.get(rest[0]).sub.unsubscribe(most || undefined);
      return "ok";
    }
    case "pub":
    case "big": {
      const [connection, subject, reply, data, head] = rest;
      const payload = command === "big" ? codec.encode("x".repeat(Number(data))) : codec.encode(data === "-" ? "" : data);
      const options = {};
      if (reply !== "-") options.reply = reply;
      if (head !== "-") {
        options.headers = makeHeaders();
        for (const pair of head.split(";")) { const [key, value] = pair.split("="); options.headers.set(key, value); }
      }
      try { connections.get(connection).publish(subject, payload, options); }
      catch (error) { return /max.?payload/i.test(error.message + error.code) ? "max_payload" : `error ${error.message}`; }
      return "ok";
    }
    case "flush": await connections.get(rest[0]).flush(); return "ok";
    case "next": {
      const msg = await subscriptions.get(rest[0]).next(Number(rest[1]));
      if (!msg) return "none";
      last.set(rest[0], msg);
      return shown(msg);
    }
    case "size": return String((await subscriptions.get(rest[0]).next(Number(rest[1]))).data.length);
    case "respond": last.get(rest[0]).respond(codec.encode(rest[1])); return "ok";
    case "request": {
      const [connection, subject, data, timeout] = rest;
      try {
        const msg = await connections.get(connection).request(subject, codec.encode(data), { timeout: Number(timeout) });
        return codec.decode(msg.data) || "-";
      } catch (error) {
        if (error.code === "503") return "no_responders";
        return error.code === "TIMEOUT" ? "timeout" : `error ${error.message}`;
      }
    }
    case "serve": {
      const [name, connection, subject, queue, answer] = rest;
      const sub = connections.get(connection).subscribe(subject, {
        queue: queue === "-" ? undefined : queue,
        callback: (error, msg) => { if (!error) msg.respond(codec.encode(codec.decode(msg.data) + answer)); },
      });
      subscriptions.set(name, { sub });
      return "ok";
    }
    case "violation":
      for (let i = 0; i < 50; i++) {
        if (violations.has(rest[0])) { const found = violations.get(rest[0]); violations.delete(rest[0]); return found; }
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return "none";
    case "max_payload": return String(connections.get(rest[0]).info.max_payload);
    case "close": await connections.get(rest[0]).close(); connections.delete(rest[0]); return "ok";
    case "reset":
      for (const nc of connections.values()) await nc.close();
      connections.clear(); subscriptions.clear(); violations.clear();
      return "ok";
    default: return "unknown";
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await run(line.trim().split(/\s+/)));
}
process.exit(0);
