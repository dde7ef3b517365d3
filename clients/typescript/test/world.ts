/** A world for tests: time that passes only when everybody waits for it, and a network that does as it is told. */

import type { ClientOptions } from "@exactly/client";

interface Timer {
  readonly at: number;
  readonly wake: () => void;
}

/** Jumps to the next timer whenever nothing else is left to do. */
export class Time {
  #now = 0;
  #timers: Timer[] = [];
  #pumping = false;
  readonly slept: number[] = [];

  now = (): number => this.#now;

  /** Lets time pass while somebody works. */
  pass(ms: number): void {
    this.#now += ms;
  }

  sleep = (ms: number, signal: AbortSignal): Promise<void> => {
    this.slept.push(ms);
    return new Promise((resolve) => {
      const timer = { at: this.#now + ms, wake: resolve };
      if (signal.aborted) return resolve();
      signal.addEventListener("abort", () => {
        this.#timers = this.#timers.filter((other) => other !== timer);
        resolve();
      });
      this.#timers.push(timer);
      void this.#pump();
    });
  };

  async #pump(): Promise<void> {
    if (this.#pumping) return;
    this.#pumping = true;
    while (this.#timers.length > 0) {
      // Long enough for bodies to be read and promises to settle.
      for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      this.#timers.sort((one, other) => one.at - other.at);
      const next = this.#timers.shift();
      if (next === undefined) break;
      this.#now = Math.max(this.#now, next.at);
      next.wake();
    }
    this.#pumping = false;
  }
}

/** What was sent in one attempt. */
export interface Sent {
  readonly url: string;
  readonly method: string;
  readonly headers: Headers;
  readonly body: string | undefined;
  readonly redirect: RequestRedirect | undefined;
  readonly signal: AbortSignal;
}

export type Reply = Response | Error | "hang" | ((sent: Sent) => Response | Promise<Response>);

/** A fetch that gives these replies one after the other, the last one for ever. */
export function scripted(replies: readonly Reply[]): { fetch: typeof globalThis.fetch; sent: Sent[] } {
  const sent: Sent[] = [];
  const fetch = async (input: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const { body } = init;
    const text = body instanceof ReadableStream || body == null ? undefined : await new Response(body).text();
    const one: Sent = {
      url: String(input),
      method: init.method ?? "GET",
      headers: new Headers(init.headers),
      body: text,
      redirect: init.redirect,
      signal: init.signal ?? new AbortController().signal,
    };
    sent.push(one);
    const reply = replies[Math.min(sent.length, replies.length) - 1];
    if (reply === undefined) throw new Error("no reply is written for this attempt");
    if (reply === "hang") return new Promise(() => {});
    if (reply instanceof Error) throw reply;
    return typeof reply === "function" ? reply(one) : reply.clone();
  };
  return { fetch, sent };
}

/** How undici says that nobody listens. */
export function refused(): Error {
  const cause = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED", syscall: "connect" });
  return new TypeError("fetch failed", { cause });
}

/** How undici says that the connection was cut. */
export function cut(): Error {
  return new TypeError("fetch failed", {
    cause: Object.assign(new Error("other side closed"), { code: "UND_ERR_SOCKET" }),
  });
}

export function reply(status: number, headers: Record<string, string> = {}, body: string | null = null): Response {
  return new Response(body, { status, headers });
}

export function problem(status: number, code: string, headers: Record<string, string> = {}): Response {
  return reply(status, { "content-type": "application/problem+json", ...headers }, JSON.stringify({ code }));
}

/** A client's options in a world where nothing is left to chance. */
export function still(time: Time, replies: readonly Reply[]): { options: ClientOptions; sent: Sent[] } {
  const { fetch, sent } = scripted(replies);
  return { options: { fetch, now: time.now, wall: time.now, sleep: time.sleep, random: () => 0 }, sent };
}

/** Fails with what is missing, so that the type is known from there on. */
export function present<T>(value: T | null | undefined): T {
  if (value === null || value === undefined) throw new Error("a value is missing");
  return value;
}
