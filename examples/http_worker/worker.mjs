/* A worker in JavaScript, over HTTP: it registers, takes work by long poll, sends heartbeats and reports results.
 *
 * SERVER=http://127.0.0.1:8321 node worker.mjs     (TOKEN= where the server asks for one)
 */
const server = process.env.SERVER ?? "http://127.0.0.1:8321";
const headers = { "Content-Type": "application/json" };
if (process.env.TOKEN) headers.Authorization = `Bearer ${process.env.TOKEN}`;

const tasks = {
  /** Reverse a text: work that this worker does for a scheduler in Python. */
  reverse: ({ text }) => [...text].reverse().join(""),
  /** Fail, to show that errors arrive with their message. */
  refuse: () => { throw new Error("this worker refuses"); },
};

/** Ask the server, and return its answer. A status of 409 says that the claim has passed to another worker. */
async function ask(method, path, body) {
  const response = await fetch(`${server}/v1${path}`, { method, headers, body: JSON.stringify(body) });
  if (!response.ok && response.status !== 409) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.status === 204 ? null : response.json();
}

/** Execute one run, and report it with the token of its claim. */
async function execute({ run_id, token, task, args }) {
  let end, report;
  try {
    [end, report] = ["complete", { result: await tasks[task](args) }];
  } catch (error) {
    [end, report] = ["fail", { error: error.message }];
  }
  await ask("PUT", `/runs/${run_id}/${end}`, { token, ...report });
}

const { worker_id: id } = await ask("POST", "/workers", { name: "javascript", tasks: Object.keys(tasks) });
console.log(`registered as ${id}`);
const held = new Map();
setInterval(() => {
  const claims = [...held.values()].map(({ run_id, token }) => ({ run_id, token }));
  ask("PUT", `/workers/${id}/heartbeat`, { claims }).catch((error) => console.error(error.message));
}, 3000).unref();
for (;;) {
  try {
    const { runs } = await ask("PUT", `/workers/${id}/assign`, { wait: "20s" });
    for (const run of runs) {
      held.set(run.run_id, run);
      await execute(run).finally(() => held.delete(run.run_id));
    }
  } catch (error) {
    console.error(error.message);  // The server restarts, say. A run whose report was lost is due again.
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
