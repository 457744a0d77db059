// Requests that prove that this page knows the token, which itself goes to nobody (see ui_access.py).
const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const bytes = (text) => new TextEncoder().encode(text);

export class Problem extends Error {}

let nonce = null;  // of the server's present run, once it has shown that it knows the token

// Takes the token out of the address, which histories keep. It stays in this tab.
export function takeToken() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.has("token")) return;
  sessionStorage.setItem("token", parts.get("token"));
  parts.delete("token");
  history.replaceState(null, "", `${location.pathname}#${parts}`);
  nonce = null;
}

async function sign(...parts) {
  const token = sessionStorage.getItem("token");
  if (!token) throw new Problem("open the address that `jobctl ui` has printed: it has the token");
  const key = await crypto.subtle.importKey("raw", bytes(token), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return hex(await crypto.subtle.sign("HMAC", key, bytes(parts.join("\n"))));
}

async function answerOf(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    nonce = null;
    throw new Problem("no connection: has `jobctl ui` ended? This page goes on when it runs again at this address");
  }
  try {
    return [answer.status, await answer.json()];
  } catch (error) {
    if (error.name === "AbortError") throw error;
    nonce = null;
    throw new Problem("another program answers at this address: start `jobctl ui` again, and open what it prints");
  }
}

async function meet() {
  const challenge = hex(crypto.getRandomValues(new Uint8Array(16)));
  const expected = await sign("server", location.host, challenge);
  const [, said] = await answerOf("/api/hello?challenge=" + challenge);
  if (said.proof !== expected) {
    throw new Problem("a server with another token answers at this address: open the address that `jobctl ui` has printed");
  }
  nonce = said.nonce;
}

async function send(method, target, body, signal) {
  if (nonce === null) await meet();
  const signature = await sign("page", location.host, nonce, method, target, body || "");
  const headers = { "X-Jobctl-Signature": signature, ...(body ? { "Content-Type": "application/json" } : {}) };
  return answerOf(target, { method, headers, signal, ...(body ? { body } : {}) });
}

async function exchange(method, target, body, signal) {
  let [status, data] = await send(method, target, body, signal);
  if (status === 401 && nonce !== null) {  // the server was started again since then
    nonce = null;
    [status, data] = await send(method, target, body, signal);
  }
  if (status >= 400) throw Object.assign(new Problem(data.error), { told: true });
  return data;
}

export const ask = (path, query, signal) => exchange("GET", path + "?" + new URLSearchParams(query || {}), null, signal);
export const tell = (path, data) => exchange("POST", path, JSON.stringify(data));
