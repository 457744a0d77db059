// Tables and curves. Everything that comes from a job becomes text (textContent), never HTML.
export const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

export function made(name, text, kind) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (kind) found.className = kind;
  return found;
}

// A cell is [value, class], or [key, class, make, update] for one that holds an element.
function patch(cell, [value, kind, make, update]) {
  if (cell.className !== (kind || "")) cell.className = kind || "";
  if (make) {
    if (cell.dataset.key !== String(value)) {
      cell.dataset.key = String(value);
      cell.replaceChildren(make());
    }
    if (update) update(cell.firstChild);
    return;
  }
  const text = value === null || value === undefined ? "-" : String(value);
  if (cell.textContent !== text) cell.textContent = text;
}

// Changes only what is another than before: what somebody has focused or selected stays so.
export function fill(id, rows) {
  const body = at(id);
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, number) => {
    const row = body.rows[number] || body.insertRow();
    cells.forEach((cell, column) => patch(row.cells[column] || row.insertCell(), cell));
  });
}

export function moment(text) {
  return [text, "", () => {
    const time = made("time", new Date(text).toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }));
    time.dateTime = time.title = text;
    return time;
  }];
}

// A cell with a curve for each device, from 0 to 100 percent; `lines` are lists of percent, null where nothing is known.
export function spark(lines, words) {
  if (!lines.length) return ["-"];
  return ["spark", "spark", newSpark, (box) => {
    const d = lines.map((line) => path(line, 60, 100)).join("");
    const [picture, figure] = box.children;
    if (picture.firstChild.getAttribute("d") !== d) picture.firstChild.setAttribute("d", d);
    if (figure.textContent !== words) figure.textContent = words;
    picture.setAttribute("aria-label", words);
  }];
}

function newSpark() {
  const box = made("span");
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 100 20");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.append(document.createElementNS(SVG, "path"));
  box.append(picture, made("span"));
  return box;
}

function path(line, count, top) {
  const step = 100 / Math.max(1, count - 1);
  let pen = "M";
  return line.slice(-count).map((value, i, all) => {
    if (value === null) { pen = "M"; return ""; }
    const point = `${pen}${((count - all.length + i) * step).toFixed(1)} ${(19 - 18 * value / top).toFixed(1)}`;
    pen = "L";
    return point;
  }).join("");
}

// Steps per second between records of steps: nothing where a generation began, or went back to a checkpoint.
export function rates(points) {
  const found = [];
  for (let i = 1; i < points.length; i++) {
    const [before, generation, step] = points[i - 1];
    const seconds = points[i][0] - before;
    if (seconds > 0 && points[i][1] === generation && points[i][2] >= step) found.push((points[i][2] - step) / seconds);
  }
  return found;
}

export function curve(found) {
  const top = Math.max(...found, 1e-9);
  const width = 300 / Math.max(1, found.length - 1);
  return found.map((rate, i) => `${i ? "L" : "M"}${(i * width).toFixed(1)} ${(58 - 56 * rate / top).toFixed(1)}`).join("");
}
