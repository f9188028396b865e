/**
 * The part of `minato doctor` about the port: which program answers there, how many connections it has room
 * for, which clients the node treats as local.
 */
import { get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import type { Client } from 'pg';
import { DEFAULT_SLUG, readCommunities } from '../communities/communities.sql.js';
import { readNodeSettings } from '../communities/node-settings.sql.js';
import { settingsFrom } from '../communities/rules-settings.js';
import { type Finding, fail, info, ok, warn } from '../health/finding.js';
import type { Config } from '../node/config.js';
import { SOFTWARE_URL, SOFTWARE_VERSION } from '../node/version.js';
import { RESERVED_DESCRIPTORS, readDescriptorLimit, roomFor } from '../port/descriptors.js';
import { ROOM } from '../port/http.js';
import { count } from './progress.js';

const ANSWER_MS_MAX = 3_000;
const ANSWER_BYTES_MAX = 10_000_000;
const RESTART_ADVICE = 'Restart the node and read its log.';

/** The limit of the running node if its process is known, otherwise that of a node started from here. */
export async function* checkDescriptors(holder: number | undefined): AsyncGenerator<Finding> {
  const limit = await readDescriptorLimit(holder ?? 'self').then((found) => found ?? readDescriptorLimit());
  if (limit === undefined) return;
  const room = roomFor(limit, ROOM);
  const text =
    `${count(limit)} open files: room for ${count(room.websockets)} websockets ` +
    `and ${count(room.http)} HTTP connections`;
  if (room === ROOM) yield ok(text);
  else {
    const wanted = ROOM.http + ROOM.websockets + RESERVED_DESCRIPTORS;
    yield warn(
      `${text}; ${RESERVED_DESCRIPTORS} files are reserved for the database`,
      `For all ${count(ROOM.websockets)} websockets raise the limit to ${count(wanted)}: ` +
        `ulimit -n ${wanted}, LimitNOFILE= with systemd, --ulimit with Docker.`,
    );
  }
}

const LOOPBACK_ADVICE = `A program on this machine that forwards clients without naming them (Tor, a tunnel,
a TCP proxy) makes each of them look local: no rates, no blocks, and /metrics is open.
If no program here needs the exemption: minato settings set rate.exemptLoopback false.
Otherwise see "Behind a proxy" in docs/limits.md.`;

/** Warns if clients of a public node may be treated as local programs. */
export async function* checkLoopback(client: Client, config: Config): AsyncGenerator<Finding> {
  const home = (await readCommunities(client)).find(({ slug }) => slug === DEFAULT_SLUG);
  if (home === undefined) return;
  if (!settingsFrom(home.settings, await readNodeSettings(client))['rate.exemptLoopback']) return;
  const isPublic =
    config.publicUrl !== undefined && !/^(localhost|127\.|\[?::1)/.test(new URL(config.publicUrl).hostname);
  if (isPublic && !config.proxyProtocol)
    yield warn(
      'clients on this machine are exempt from every limit, and the node is public',
      LOOPBACK_ADVICE,
    );
}

const WILDCARDS: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

export async function* checkPort(config: Config, holder: number | undefined): AsyncGenerator<Finding> {
  const { host, port, proxyProtocol } = config;
  const where = `${host}:${port}`;
  if (port === 0) {
    yield info('MINATO_PORT is 0: the node takes any free port, which is unknown here');
    return;
  }
  const target = WILDCARDS[host] ?? host;
  const base = `http://${target.includes(':') ? `[${target}]` : target}:${port}`;
  const asking = { proxyProtocol };
  const ready = await ask(`${base}/readyz`, 'application/json', asking);
  if (ready === undefined) {
    if (holder === undefined) yield info(`nothing answers at ${where}: no node is running there`);
    else {
      const advice =
        'It may have just started, use another port, or be a long command such as import. ' +
        'Otherwise read its log.';
      yield warn(`process ${holder} holds the data folder, but nothing answers at ${where}`, advice);
    }
    return;
  }
  const about = await ask(`${base}/`, 'application/nostr+json', asking);
  const { software, version } = (about?.body ?? {}) as { software?: unknown; version?: unknown };
  if (software !== SOFTWARE_URL) {
    const advice = 'Stop it, or set MINATO_PORT to a free port.';
    yield fail(`another program answers at ${where}`, advice);
    return;
  }
  const { status } = (ready.body ?? {}) as { status?: unknown };
  if (ready.code === 200) yield ok(`Minato ${String(version)} answers at ${where} and is ready`);
  else
    yield warn(
      `Minato ${String(version)} answers at ${where}, but is not ready: ${String(status)}`,
      RESTART_ADVICE,
    );
  if (version !== SOFTWARE_VERSION) {
    yield warn(
      `it runs ${String(version)}, installed is ${SOFTWARE_VERSION}`,
      'Restart the node to run what is installed.',
    );
  }
  const metrics = (await ask(`${base}/metrics`, 'text/plain', asking))?.text ?? '';
  if (/^minato_unnamed_forwards_total [1-9]/m.test(metrics))
    yield warn('a program on this machine forwards clients without naming them', LOOPBACK_ADVICE);
}

interface Answer {
  readonly code: number;
  readonly text: string;
  /** Undefined when it is not JSON. */
  readonly body: unknown;
}

/** Undefined if nothing listens. A listener that does not speak HTTP gives an answer with code 0. */
async function ask(
  url: string,
  accept: string,
  { proxyProtocol }: { readonly proxyProtocol: boolean },
): Promise<Answer | undefined> {
  try {
    const { statusCode: code = 0, text } = await fetchText(url, accept, proxyProtocol);
    return { code, text, body: jsonIn(text) };
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    return ['ECONNREFUSED', 'EHOSTUNREACH', 'EADDRNOTAVAIL', 'ENOTFOUND'].includes(code)
      ? undefined
      : { code: 0, text: '', body: undefined };
  }
}

/** With the PROXY protocol it sends the header with which a proxy makes a request of its own. */
async function fetchText(
  url: string,
  accept: string,
  proxyProtocol: boolean,
): Promise<{ readonly statusCode: number | undefined; readonly text: string }> {
  const { hostname, port } = new URL(url);
  const connectAsProxy = () => {
    const socket = connect(Number(port), hostname.replace(/^\[(.*)\]$/, '$1'));
    socket.write('PROXY UNKNOWN\r\n');
    return socket;
  };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const options = { headers: { accept }, signal: AbortSignal.timeout(ANSWER_MS_MAX) };
    const connecting = proxyProtocol ? { createConnection: connectAsProxy } : { agent: false };
    get(url, { ...options, ...connecting }, resolve).on('error', reject);
  });
  let text = '';
  for await (const part of response) {
    text += String(part);
    if (text.length > ANSWER_BYTES_MAX) break;
  }
  return { statusCode: response.statusCode, text };
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
