/** The real gateway, the service behind it that counts its effects, and a bad line between it and its clients. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import type { AddressInfo, Server as TcpServer, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** What is asked of the service: pay for an order, and behave like that on the way. */
export interface Payment {
  readonly order: string;
  /** Answers 503 this many times before it does anything. */
  readonly busy?: number;
  /** Milliseconds between the effect and the answer. */
  readonly slow?: number;
  /** Does it, and hangs up without an answer. */
  readonly drop?: boolean;
}

/** A service that does a thing every time it is asked, and remembers what it did. */
export class PaymentService {
  /** How often each order was paid. */
  readonly effects = new Map<string, number>();
  /** The keys that came with each order. */
  readonly keys = new Map<string, Set<string>>();
  readonly #done = new Map<string, string>();
  readonly #refusals = new Map<string, number>();
  readonly #server: Server;
  /** The origin whose pages may ask; nobody else's unless it is named. */
  allowed: string | undefined;
  url = "";

  constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  async listen(): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  paid(order: string): number {
    return this.effects.get(order) ?? 0;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on("error", () => {});
    if (this.allowed !== undefined) response.setHeader("access-control-allow-origin", this.allowed);
    if (request.method === "OPTIONS") {
      response.setHeader("access-control-allow-methods", "POST");
      response.setHeader("access-control-allow-headers", "content-type, idempotency-key, x-request-timeout");
      return void response.writeHead(204).end();
    }
    const byCall = /^\/payments\/by-call\/(.*)$/.exec(request.url ?? "");
    if (byCall !== null) {
      const done = this.#done.get(byCall[1] ?? "");
      return void response.writeHead(done === undefined ? 404 : 201).end(done);
    }
    if (request.url === "/moved") return void response.writeHead(307, { location: "/payments" }).end();
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    this.#pay(JSON.parse(Buffer.concat(pieces).toString()) as Payment, request, response);
  }

  #pay({ order, busy = 0, slow = 0, drop = false }: Payment, request: IncomingMessage, response: ServerResponse): void {
    const keys = this.keys.get(order) ?? new Set();
    this.keys.set(order, keys.add(String(request.headers["idempotency-key"])));
    const refused = this.#refusals.get(order) ?? 0;
    if (refused < busy) {
      this.#refusals.set(order, refused + 1);
      return void response.writeHead(503, { "retry-after": "0" }).end();
    }
    this.effects.set(order, this.paid(order) + 1);
    const answer = JSON.stringify({ order, paid: this.paid(order) });
    this.#done.set(String(request.headers["exactly-call"]), answer);
    if (drop) return void response.destroy();
    setTimeout(() => response.writeHead(201, { "content-type": "application/json" }).end(answer), slow);
  }
}

const SERVER_VARIABLE = "EXACTLY_SERVER";

/** `exactly serve` in front of a service, with a store of its own. */
export class Gateway {
  readonly #process: ChildProcess;
  readonly #folder: string;

  private constructor(
    process: ChildProcess,
    folder: string,
    readonly url: string,
  ) {
    this.#process = process;
    this.#folder = folder;
  }

  static async start(upstream: string): Promise<Gateway> {
    const program = process.env[SERVER_VARIABLE];
    assert.ok(program !== undefined, `${SERVER_VARIABLE} names the gateway; cargo xtask test sets it`);
    const folder = mkdtempSync(join(tmpdir(), "exactly-typescript-"));
    writeFileSync(join(folder, "exactly.toml"), config(upstream));
    const child = spawn(program, ["serve"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    assert.ok(child.stdout !== null);
    for await (const line of createInterface({ input: child.stdout })) {
      const found = /protecting \S+ on (\S+)$/.exec(line)?.[1];
      if (found !== undefined) {
        // What nobody reads would stop it in the end.
        child.stdout.resume();
        return new Gateway(child, folder, found);
      }
    }
    rmSync(folder, { recursive: true });
    throw new Error("exactly serve ended at its start");
  }

  async stop(): Promise<void> {
    const ended = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await ended;
    rmSync(this.#folder, { recursive: true });
  }
}

function config(upstream: string): string {
  return `
listen = "127.0.0.1:0"
upstream = "${upstream}"
store = "sqlite:exactly.db"

[admin]
listen = "127.0.0.1:0"

[[routes]]
method = "POST"
path = "/payments"
reconcile = "/payments/by-call/{call}"
reconcile_after = "50ms"
replayed_headers = ["access-control-allow-origin"]
`;
}

/** What becomes of one connection on the bad line. */
export type Fault = { readonly request: number } | { readonly answer: number } | undefined;

/** A line to the gateway on which connections break off. */
export class BadLine {
  readonly #server: TcpServer;
  readonly #sockets = new Set<Socket>();
  /** The fault of the next connection; none is a good line. */
  fault: () => Fault = () => undefined;
  url = "";

  constructor(readonly target: string) {
    this.#server = createTcpServer((socket) => this.#pass(socket));
  }

  async listen(): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  /** So that the next request has a connection of its own. */
  async hangUp(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    // A few turns more, for the other side to notice.
    for (let turns = 0; this.#sockets.size > 0 || turns < 3; turns += 1)
      await new Promise((resolve) => setImmediate(resolve));
  }

  #pass(client: Socket): void {
    const fault = this.fault();
    const gateway = connect(Number(new URL(this.target).port), "127.0.0.1");
    for (const socket of [client, gateway]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#sockets.delete(socket);
        client.destroy();
        gateway.destroy();
      });
    }
    forward(client, gateway, fault !== undefined && "request" in fault ? fault.request : Infinity);
    forward(gateway, client, fault !== undefined && "answer" in fault ? fault.answer : Infinity);
  }
}

/** Passes this many bytes on, and then breaks off. */
function forward(from: Socket, to: Socket, most: number): void {
  let left = most;
  from.on("data", (bytes) => {
    const part = bytes.subarray(0, Math.min(left, bytes.length));
    left -= bytes.length;
    to.write(part, () => {
      if (left < 0) from.destroy();
    });
  });
}
