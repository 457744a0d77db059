"use strict";
// Everything that comes from a job becomes text (textContent), never HTML.
const INTERVAL = 2000;
const at = (id) => document.getElementById(id);
let chosen = decodeURIComponent(location.hash.slice(1));
let told = "";

async function ask(path, query) {
  const answer = await fetch(path + "?" + new URLSearchParams(query || {}));
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error);
  return data;
}

function cell(value, kind) {
  const made = document.createElement("td");
  if (value instanceof Node) made.append(value);
  else made.textContent = value === null || value === undefined ? "-" : String(value);
  if (kind) made.className = kind;
  return made;
}

function moment(text) {
  const made = document.createElement("time");
  made.dateTime = made.title = text;
  made.textContent = new Date(text).toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return made;
}

function fill(id, rows) {
  at(id).replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  }));
}

function button(name) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = name;
  made.setAttribute("aria-pressed", String(name === chosen));
  made.addEventListener("click", () => { location.hash = encodeURIComponent(name); });
  return made;
}

function showJobs(jobs) {
  const names = jobs.map((job) => job.job);
  const focus = document.activeElement.closest("#jobs button");
  const name = focus && focus.textContent;
  if (!chosen && names.length) chosen = names[0];
  fill("jobs", jobs.map((job) => [cell(button(job.job)), cell(job.phase, job.phase), cell(job.replicas), cell(job.step),
    cell(job.generation), cell(job.reason, "words")]));
  if (name) [...document.querySelectorAll("#jobs button")].filter((one) => one.textContent === name).forEach((one) => one.focus());
}

function rates(points) {
  const found = [];
  for (let i = 1; i < points.length; i++) {
    const [before, generation, step] = points[i - 1];
    const seconds = points[i][0] - before;
    if (seconds > 0 && points[i][1] === generation && points[i][2] >= step) found.push((points[i][2] - step) / seconds);
  }
  return found;
}

function showRate(points) {
  const found = rates(points);
  const top = Math.max(...found, 1e-9);
  const width = 300 / Math.max(1, found.length - 1);
  at("curve").setAttribute("points", found.map((rate, i) => `${i * width},${58 - 56 * rate / top}`).join(" "));
  at("speed").textContent = found.length ? `${found[found.length - 1].toPrecision(3)} steps/s` : "no step rate is known yet";
}

function showJob(job) {
  const story = job.story;
  at("name").textContent = job.job;
  at("facts").textContent = [job.phase, job.reason, job.framework, `target ${job.target}`, `generation ${job.generation}`,
    `step ${job.step ?? "-"}`, story.ratio === null ? null : `${Math.round(100 * story.ratio)} % effective training time`,
    job.supervised === false ? "no supervisor" : null].filter(Boolean).join(" · ");
  showRate(job.points);
  fill("nodes", job.nodes.map((node) => [cell(node.name ?? node.node), cell(node.host), cell(node.state, node.state),
    cell(node.progress), cell(node.restarts), cell(node.processes.map((one) => one.rank).join(" "))]));
  fill("failures", story.failures.map((one) => [cell(moment(one.time)), cell(one.node), cell(one.cause, "words"), cell(`${Math.round(one.lost)} s`)]));
  fill("events", story.events.slice().reverse().map((one) => [cell(moment(one.time)), cell(one.kind), cell(one.message, "words")]));
  const state = `${job.job} ${job.phase} ${job.generation} ${story.events.length} ${story.failures.length}`;
  if (at("report").open && state !== told) {
    told = state;
    at("frame").src = "/report?" + new URLSearchParams({ job: job.job });
  }
}

async function showLogs(name) {
  const filter = { job: name, node: at("node").value, rank: at("rank").value, text: at("text").value };
  try {
    const found = await ask("/api/logs", filter);
    at("trouble").textContent = found.problems.join("; ");
    at("logs").textContent = found.lines.map((one) => `node${one.node} ${one.rank === null ? one.log : "rank" + one.rank} | ${one.line}`).join("\n");
    if (at("follow").checked) at("logs").scrollTop = at("logs").scrollHeight;
  } catch (error) {
    if (error instanceof TypeError) throw error;  // no connection
    at("trouble").textContent = error.message;
    at("logs").textContent = "";
  }
}

async function look() {
  showJobs((await ask("/api/jobs")).jobs);
  at("job").hidden = !chosen;
  if (!chosen) return;
  const name = chosen;
  showJob(await ask("/api/job", { job: name }));
  if (at("follow").checked) await showLogs(name);
}

async function live() {
  try {
    await look();
    at("link").textContent = "live";
    at("link").className = "";
  } catch (error) {
    at("link").textContent = error instanceof TypeError ? "no connection to jobctl ui: trying again" : error.message;
    at("link").className = "bad";
  }
  setTimeout(live, INTERVAL);
}

window.addEventListener("hashchange", () => { chosen = decodeURIComponent(location.hash.slice(1)); told = ""; look().catch(() => {}); });
at("filter").addEventListener("input", () => { showLogs(chosen).catch(() => {}); });
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("report").addEventListener("toggle", () => { told = ""; look().catch(() => {}); });
live();
