// The buttons: each asks first, in a dialog that names the job and says what will happen.
import { ask, tell } from "./access.js";
import { at, made } from "./draw.js";

let wish = null;

async function question() {
  const mine = wish;
  at("yes").disabled = true;
  at("words").textContent = "asking the job …";
  try {
    const { words } = await ask("/api/ask", mine);
    if (wish !== mine) return;
    at("words").textContent = words;
    at("yes").disabled = false;
  } catch (error) {
    if (wish === mine) at("words").textContent = error.message;
  }
}

function open(job, action) {
  wish = { job, action };
  const name = action[0].toUpperCase() + action.slice(1);
  at("question").textContent = `${name} job ${job}?`;
  at("yes").textContent = `${name} ${job}`;
  at("choices").hidden = action !== "drill";
  at("victim").value = "process";
  at("at").value = "";
  at("sure").showModal();
  at("no").focus();
  question();
}

function chosen() {
  wish = { job: wish.job, action: wish.action, victim: at("victim").value, node: at("at").value };
  question();
}

// `after` is called once something was begun: the page should look again.
export function listen(jobOf, after) {
  for (const button of at("actions").querySelectorAll("button")) {
    button.addEventListener("click", () => open(jobOf(), button.dataset.action));
  }
  at("victim").addEventListener("change", chosen);
  at("at").addEventListener("change", chosen);
  at("no").addEventListener("click", () => at("sure").close());
  at("sure").addEventListener("close", () => { wish = null; });
  at("sure").querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  at("yes").addEventListener("click", async () => {
    at("yes").disabled = true;
    try {
      await tell("/api/act", wish);
      at("sure").close();
      after();
    } catch (error) {
      at("words").textContent = error.message;
    }
  });
}

export function showActions(allowed, job) {
  at("actions").hidden = !allowed || job.down !== false;
  at("done").replaceChildren(...job.actions.slice(0, 3).map((one) => {
    const line = made("li", undefined, one.state);
    const state = one.state === "running" ? "at work" : one.state === "failed" ? "not done" : "done";
    line.append(made("b", `${one.action}: ${state}`), ` ${one.text || one.said.at(-1) || ""}`);
    return line;
  }));
}
