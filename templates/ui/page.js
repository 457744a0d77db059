// Looks at jobs again and again, and shows them.
import { ask, takeToken } from "./access.js";
import { listen, showActions } from "./actions.js";
import { at, curve, fill, made, moment, rates, spark } from "./draw.js";

const INTERVAL = 2000;
const HIDDEN = 30000;  // between two looks while nobody sees the page
const LINES = 1000;  // of logs on the page
const SAMPLES = 60;

takeToken();
let chosen = new URLSearchParams(location.hash.slice(1)).get("job") || "";
let told = "";
let logs = { key: "", at: "", lines: [] };
let seen = { job: "", number: 0, samples: [], story: null };
let allowed = false;
let timer = 0;
let patience = new AbortController();  // for answers about the job that is chosen: nobody waits for those about another

function button(name) {
  const one = made("button", name);
  one.type = "button";
  one.addEventListener("click", () => { location.hash = new URLSearchParams({ job: name }); });
  return one;
}

function showJobs(jobs) {
  if (!chosen && jobs.length) chosen = jobs[0].job;
  fill("jobs", jobs.map((job) => [
    [job.job, "", () => button(job.job), (one) => one.setAttribute("aria-pressed", String(job.job === chosen))],
    [job.down ? (job.phase === "stopped" ? "down" : `${job.phase}, down`) : job.phase, job.phase],
    [job.replicas], [job.step], [job.generation],
    [job.reason ?? (job.down_since ? `down since ${new Date(job.down_since).toLocaleString()}` : null), "words"]]));
}

function size(bytes) {
  return bytes === null ? "-" : bytes < 2 ** 30 ? `${Math.round(bytes / 2 ** 20)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// The curves of a node's devices, from the samples that this page has: column 0 is use, column 1 memory.
function curves(node, count, column) {
  return Array.from({ length: count }, (_, device) => seen.samples.map((one) => one.busy[node]?.[device]?.[column] ?? null));
}

function showNodes(job) {
  at("nodes").closest("section").hidden = !job.nodes.length;
  fill("nodes", job.nodes.map((node) => {
    const load = job.loads[node.node] || { rate: null, devices: [] };
    const count = load.devices.length;
    const use = mean(load.devices.map((one) => one.use));
    const used = mean(load.devices.map((one) => one.used));
    return [[node.name ?? node.node], [node.host], [node.state, node.state], [node.progress],
      [load.rate === null ? null : load.rate.toPrecision(3)],
      spark(curves(node.node, count, 0), use === null ? "-" : `${Math.round(100 * use)} %`),
      spark(curves(node.node, count, 1), size(used)),
      [node.restarts], [ranks(node.processes)]];
  }));
}

function ranks(processes) {
  const all = processes.map((one) => one.rank).sort((a, b) => a - b);
  return all.length > 1 ? `${all[0]}-${all.at(-1)}` : all[0];
}

function kept(failure) {
  const box = made("div", failure.cause);
  for (const [head, lines, open] of [...failure.stacks.map((one) => [`where ${one.who} stood`, one.frames, true]),
    ...(failure.tail.length ? [[`last lines of ${failure.log || "its log"}`, failure.tail, false]] : [])]) {
    const part = made("details");
    part.open = open;
    part.append(made("summary", head), made("pre", lines.join("\n")));
    box.append(part);
  }
  return box;
}

function showStory(story) {
  fill("failures", story.failures.map((one) => [moment(one.time), [one.node],
    [`${one.time} ${one.stacks.length} ${one.tail.length}`, "words", () => kept(one)], [`${one.lost} s, ${one.outcome}`]]));
  fill("events", story.events.slice().reverse().map((one) => [moment(one.time), [one.kind], [one.message, "words"]]));
}

async function showReport(job, version) {
  if (!at("report").open || told === version) return;
  told = version;
  const { ticket } = await ask("/api/ticket", { job });
  at("frame").src = "/report?" + new URLSearchParams({ ticket });
}

function showJob(job) {
  const story = job.story || seen.story;
  if (job.samples.length) {
    if (job.samples[0].number !== seen.number + 1) seen.samples = [];
    seen.samples = [...seen.samples, ...job.samples].slice(-SAMPLES);
    seen.number = job.samples.at(-1).number;
  }
  at("name").textContent = job.job;
  at("facts").textContent = [job.down ? `${job.phase}, down` : job.phase, job.reason, job.framework, job.target && `target ${job.target}`,
    job.generation && `generation ${job.generation}`, job.step !== null && `step ${job.step}`,
    story.ratio === null ? null : `${Math.round(100 * story.ratio)} % effective training time`,
    story.lost ? `failures cost ${story.lost} s` : null,
    job.age > 5 ? `its hosts have not answered for ${job.age} s` : null,
    job.down === false && job.supervised === false ? "no supervisor" : null].filter(Boolean).join(" · ");
  const found = rates(job.points);
  at("curve").setAttribute("d", curve(found));
  const last = found.length ? `last: ${found.at(-1).toPrecision(3)} steps/s` : "no step rate is known yet";
  at("speed").textContent = job.rate === null ? last : `${job.rate.toPrecision(3)} steps/s`;
  showNodes(job);
  showActions(allowed, job);
  if (story !== seen.story) showStory(story);
  seen.story = story;
}

let reading = Promise.resolve();

// One request at a time: two would bring the same lines.
function showLogs(name) {
  const mine = reading.then(() => readLogs(name));
  reading = mine.catch(() => {});
  return mine;
}

async function readLogs(name) {
  const filter = { job: name, node: at("node").value, rank: at("rank").value, text: at("text").value };
  const key = JSON.stringify(filter);
  try {
    const found = await ask("/api/logs", { ...filter, since: logs.key === key ? logs.at : "" }, patience.signal);
    const lines = found.lines.map((one) => `node${one.node} ${one.writer} | ${one.line}`);
    const before = logs.key === key && found.more ? logs.lines : [];
    logs = { key, at: found.at, lines: [...before, ...lines].slice(-LINES) };
    const searched = found.searched && `searching: up to ${new Date(found.searched).toLocaleString()} so far`;
    at("trouble").textContent = [...found.problems, searched].filter(Boolean).join("; ");
    if (lines.length || !before.length) at("logs").textContent = logs.lines.join("\n");
    if (at("follow").checked && lines.length) at("logs").scrollTop = at("logs").scrollHeight;
    if (found.searched && chosen === name) setTimeout(() => showLogs(name).catch(() => {}));
  } catch (error) {
    if (!error.told) throw error;  // no connection
    logs = { key: "", at: "", lines: [] };
    at("trouble").textContent = error.message;
    at("logs").textContent = "";
  }
}

async function look() {
  const found = await ask("/api/jobs");
  allowed = found.actions;
  showJobs(found.jobs);
  at("job").hidden = !chosen;
  if (!chosen) return;
  const name = chosen;
  if (seen.job !== name) seen = { job: name, number: 0, samples: [], story: null };
  const version = seen.story ? seen.story.version : "";
  const job = await ask("/api/job", { job: name, since: seen.number, story: version }, patience.signal);
  if (name !== chosen) return;  // somebody has chosen another one meanwhile
  showJob(job);
  if (at("follow").checked) await showLogs(name);
  const { phase, failures, events } = seen.story;
  const last = events.length ? events.at(-1).time : "";
  // Not whenever a figure changes: somebody may be reading it.
  await showReport(name, [name, job.phase, phase, job.generation, failures.length, last].join(" "));
}

// What was shown belongs to another job.
function clear() {
  at("name").textContent = chosen;
  at("facts").textContent = "looking …";
  for (const id of ["nodes", "failures", "events"]) fill(id, []);
  for (const id of ["done", "logs", "speed", "trouble"]) at(id).textContent = "";
  at("curve").setAttribute("d", "");
  at("actions").hidden = true;
  logs = { key: "", at: "", lines: [] };
}

let looking = null;

// Looks now, and again later; two looks are never under way at the same time.
function live() {
  clearTimeout(timer);
  looking = (looking || Promise.resolve()).then(look).then(() => {
    at("link").textContent = "live";
    at("link").className = "";
  }, (error) => {
    if (error.name === "AbortError") return;
    at("link").textContent = error.message;
    at("link").className = "bad";
  }).then(() => {
    clearTimeout(timer);
    timer = setTimeout(live, document.hidden ? HIDDEN : INTERVAL);
  });
}

window.addEventListener("hashchange", () => {
  takeToken();
  chosen = new URLSearchParams(location.hash.slice(1)).get("job") || "";
  told = "";
  patience.abort();
  patience = new AbortController();
  clear();
  live();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) live(); });
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
  if (event.key === "/" && !typing && !at("sure").open && !at("job").hidden) {
    event.preventDefault();
    at("text").focus();
  }
  const buttons = [...document.querySelectorAll("#jobs button")];
  const number = buttons.indexOf(document.activeElement);
  if (number >= 0 && ["ArrowDown", "ArrowUp"].includes(event.key)) {
    event.preventDefault();
    buttons.at((number + (event.key === "ArrowDown" ? 1 : -1)) % buttons.length).focus();
  }
});
at("filter").addEventListener("input", () => { if (chosen) showLogs(chosen).catch(() => {}); });
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("report").addEventListener("toggle", () => { told = ""; live(); });
listen(() => chosen, live);
live();
