/** A worker of compaction: docs/worker-protocol.md says what it sends, and when. */

import { DuckDBInstance, type DuckDBConnection } from "@duckdb/node-api";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { merge, remove, type Assignment, type Output } from "./merge.js";

const { values: options } = parseArgs({ options: {
  server: { type: "string" }, "token-file": { type: "string" },
  queue: { type: "string", multiple: true, default: [] }, slots: { type: "string", default: "1" },
} });
if (!options.server) throw new Error("--server: expected an address such as http://host:3001");

interface Held { work: Assignment; connection: DuckDBConnection; until: number; lost: boolean }
type Order = "run" | "quiet" | "stop";

const id = randomUUID();
const root = `${options.server.replace(/\/+$/, "")}/api/v1/workers`;
const held = new Map<string, Held>();
const duckdb = await DuckDBInstance.create(":memory:");
const waiting = new AbortController();
let draining = false, givingBack = false;
let leaseSeconds = 60, longestWait = 0;

class Answer extends Error {
  constructor(readonly status: number, detail: string) { super(detail); }
}

/** Sends a request; throws an Answer of status 0 if there was none, or none for now. */
async function call(method: string, path: string, body?: unknown, signal?: AbortSignal) {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  const file = options["token-file"];
  if (file) headers["Authorization"] = `Bearer ${readFileSync(file, "utf8").trim()}`;
  let status = 0, document: any = {};
  try {
    const answer = await fetch(root + path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ?? AbortSignal.timeout(30_000),
    });
    const content = await answer.text();
    document = content ? JSON.parse(content) : {};
    status = answer.status;
  } catch (error) {
    throw new Answer(0, String(error));
  }
  if (status >= 500 || status === 408 || status === 429) throw new Answer(0, `status ${status}`);
  if (status >= 400) throw new Answer(status, document.detail ?? `status ${status}`);
  return document;
}

async function register() {
  const answer = await call("PUT", `/${id}`, {
    name: `typescript ${hostname()}:${process.pid}`, queues: options.queue,
    slots: Number(options.slots), version: "typescript-worker 1", labels: { engine: "duckdb" },
  });
  ({ lease_seconds: leaseSeconds, longest_wait_seconds: longestWait } = answer);
  return answer.beat_seconds as number;
}

/** A request of this worker, which is registered again if the server forgot it. */
async function own(path: string, body: unknown, signal?: AbortSignal) {
  try {
    return await call("POST", `/${id}${path}`, body, signal);
  } catch (error) {
    if (!(error instanceof Answer) || error.status !== 404) throw error;
    await register();
    return await call("POST", `/${id}${path}`, body, signal);
  }
}

function drain() {
  draining = true;
  waiting.abort();
}

function giveBack() {
  givingBack = true;
  drain();
  for (const one of held.values()) one.connection.interrupt();
}

function obey(order: Order) {
  if (order === "stop" && !givingBack) giveBack();
}

/** Sends a report until it is answered or the lease is over; returns whether it was accepted. */
async function report(one: Held, what: string, body: object): Promise<boolean> {
  const path = `/attempts/${one.work.attempt}`;
  while (!one.lost) {
    try {
      await call("POST", `${path}/${what}`, { fencing_token: one.work.fencing_token, ...body });
      return true;
    } catch (error) {
      if (!(error instanceof Answer) || error.status) {
        console.error(`${one.work.task}: ${what} was refused: ${error}`);
        break;
      }
      await sleep(200);
    }
  }
  let state = "unknown";
  // The server may not answer, or find out later than this worker that the lease is over.
  for (let tries = 0; tries < 50 && (state === "unknown" || state === "live"); tries++) {
    if (tries) await sleep(200);
    ({ state } = await call("GET", path).catch(() => ({ state: "unknown" })));
  }
  // In every other state a snapshot may have the outputs.
  if (state === "lost") await remove(one.work);
  return state === "merged" || state === "committed";
}

async function attempt(work: Assignment, until: number) {
  const one: Held = { work, connection: await duckdb.connect(), until, lost: false };
  held.set(work.attempt, one);
  try {
    let outputs: Output[];
    try {
      outputs = await merge(one.connection, work);
    } catch (error) {
      await remove(work);
      const reason = String(error).slice(0, 4000);
      await (givingBack ? report(one, "released", { reason: "its worker ends" })
        : report(one, "failed", { reason }));
      console.log(`${work.task} ${givingBack ? "released" : "failed"}: ${reason}`);
      return;
    }
    const rows_in = work.group.files.reduce((sum, file) => sum + file.rows, 0);
    const rows_deleted = rows_in - outputs.reduce((sum, output) => sum + output.rows, 0);
    if (one.lost) await remove(work);
    else if (await report(one, "merged", {
      outputs, rows_in, rows_deleted, way: "decode", because: "DuckDB rewrites the rows",
    })) console.log(`${work.task} merged: ${work.table.name}: ${work.gain}`);
  } finally {
    held.delete(work.attempt);
    one.connection.closeSync();
  }
}

/** Claims and merges one task after the other. */
async function slot() {
  let key: string | undefined;
  while (!draining) {
    // The same key until a task was claimed with it: a lost answer loses no task.
    key ??= randomUUID();
    const requestedAt = Date.now();
    try {
      const body = { key, wait_seconds: longestWait };
      const answer = await own("/claim", body, AbortSignal.any([
        waiting.signal, AbortSignal.timeout(longestWait * 1000 + 30_000)]));
      obey(answer.order);
      if (answer.retry_seconds) await sleep(1000 * answer.retry_seconds);
      if (!answer.assignment) continue;
      key = undefined;
      const lease = answer.waited_seconds + answer.assignment.lease_seconds;
      await attempt(answer.assignment, requestedAt + 1000 * lease);
    } catch (error) {
      if (error instanceof Answer && error.status === 409) key = undefined;
      else if (!draining) {
        console.error(`nothing is claimed: ${error}`);
        await sleep(1000);
      }
    }
  }
}

async function beat() {
  const requestedAt = Date.now(), attempts = [...held.values()];
  try {
    const answer = attempts.length ? await own("/beat", { attempts: attempts.map(({ work }) =>
      ({ attempt: work.attempt, fencing_token: work.fencing_token })) }) : undefined;
    for (const { attempt, answer: what } of answer?.attempts ?? []) {
      const one = held.get(attempt);
      if (!one) continue;
      if (what === "lost") one.lost = true;
      else one.until = requestedAt + 1000 * leaseSeconds;
    }
    if (answer) obey(answer.order);
  } catch (error) {
    console.error(`no heartbeat: ${error}`);
  }
  for (const one of attempts) if (Date.now() > one.until) one.lost = true;
}

for (const signal of ["SIGTERM", "SIGINT"] as const)
  process.on(signal, () => (draining ? giveBack() : drain()));
const beatSeconds = await register();
const beats = setInterval(beat, 1000 * beatSeconds);
await Promise.all(Array.from({ length: Number(options.slots) }, slot));
clearInterval(beats);
await call("DELETE", `/${id}`);
process.exit(0);
