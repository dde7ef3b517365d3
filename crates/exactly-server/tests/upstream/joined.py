#!/usr/bin/env python3
"""A small payments service that joins: it completes its call in the transaction that makes the payment.

It needs nothing but Python and psql, so it also shows how little a service has to know. `POST /payments` with a JSON
body `{"amount": 1200}` inserts a row and, if the gateway wants it to join, calls the function that completes the
call, in one transaction. `GET /payments` counts the rows.

What can go wrong is asked for by the header `X-Mishap`:

    die-before-commit     the process is killed with its transaction open and the call completed in it
    die-after-commit      the process is killed after the commit, before the answer
    sleep=SECONDS         rests before it completes the call
    hold=SECONDS          rests between completing the call and the commit
    fail-after-commit     commits, and answers 500
    forget-to-join        commits the payment without completing the call

On start it prints the port that it listens on.
"""

import argparse
import json
import os
import signal
import subprocess
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Refused(Exception):
    """The database refused a statement. `code` is its SQLSTATE."""

    def __init__(self, message):
        super().__init__(message)
        self.code = message.split(":")[1].strip() if message.count(":") > 1 else ""


class Transaction:
    """One transaction in a psql of its own. If this process dies, psql ends, and the server rolls back."""

    END = "-- end of statement --"

    def __init__(self, psql, database):
        self.psql = subprocess.Popen(
            [psql, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self.run(r"\set VERBOSITY verbose")
        self.run("begin;")

    def run(self, statement, **values):
        """Runs one statement in which `:'name'` stands for a value, quoted by psql."""
        for name, value in values.items():
            quoted = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            self.psql.stdin.write(f"\\set {name} '{quoted}'\n")
        self.psql.stdin.write(f"{statement}\n\\echo '{self.END}'\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line.rstrip("\n") == self.END:
                break
            lines.append(line)
        else:
            raise Refused("ERROR:  08006: psql ended: " + "".join(lines))
        answer = "".join(lines)
        if answer.startswith("ERROR:"):
            raise Refused(answer)
        return answer.strip()

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()
        self.psql.stdout.close()


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        payment = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        mishap, _, seconds = self.headers.get("x-mishap", "").partition("=")
        transaction = Transaction(self.server.psql, self.server.database)
        try:
            answer = json.dumps({"payment": self.pay(transaction, payment, mishap, seconds)})
        except Refused as refused:
            # XO001: the gateway has given this call up. XO002: an earlier transaction of ours has completed it.
            # Either way this one is undone, and the gateway knows what to tell its caller.
            return self.answer(503, json.dumps({"code": refused.code, "error": str(refused)}))
        finally:
            transaction.close()
        if mishap == "die-after-commit":
            os.kill(os.getpid(), signal.SIGKILL)
        if mishap == "fail-after-commit":
            return self.answer(500, json.dumps({"error": "lost after the commit"}))
        return self.answer(201, answer)

    def pay(self, transaction, payment, mishap, seconds):
        schema = self.server.schema
        number = transaction.run(
            f"insert into {schema}.payments (amount) values (:'amount'::integer) returning number;",
            amount=str(payment["amount"]),
        )
        if mishap == "sleep":
            time.sleep(float(seconds))
        if "exactly-token" in self.headers and mishap != "forget-to-join":
            transaction.run(
                f"select {schema}.calls_complete(call => :'call', token => :'token', status => 201, "
                "headers => '{\"content-type\": \"application/json\"}', "
                "body => convert_to(:'body', 'UTF8'), keep => :'keep');",
                call=self.headers["exactly-call"],
                token=self.headers["exactly-token"],
                keep=self.headers.get("exactly-keep", "86400"),
                body=json.dumps({"payment": int(number)}),
            )
        if mishap == "hold":
            time.sleep(float(seconds))
        if mishap == "die-before-commit":
            os.kill(os.getpid(), signal.SIGKILL)
        transaction.run("commit;")
        return int(number)

    def do_GET(self):
        transaction = Transaction(self.server.psql, self.server.database)
        try:
            count = transaction.run(f"select count(*) from {self.server.schema}.payments;")
        finally:
            transaction.close()
        self.answer(200, json.dumps({"payments": int(count)}))

    def answer(self, status, body):
        body = body.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing."""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--psql", default="psql")
    arguments.add_argument("--database", required=True, help="the address of the database, as psql takes it")
    arguments.add_argument("--schema", default="exactly", help="where the gateway's records and the payments are")
    arguments.add_argument("--port", type=int, default=0)
    chosen = arguments.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", chosen.port), Payments)
    server.daemon_threads = True
    server.psql, server.database, server.schema = chosen.psql, chosen.database, chosen.schema
    setup = Transaction(chosen.psql, chosen.database)
    setup.run(
        f"create table if not exists {chosen.schema}.payments "
        "(number bigint generated always as identity, amount integer not null);"
    )
    setup.run("commit;")
    setup.close()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
