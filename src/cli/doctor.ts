/**
 * `minato doctor`: looks at everything a node needs and says what to do about each problem. It changes nothing: no
 * migration, no new database. One thing it cannot avoid: to look into the embedded database while no node runs, that
 * server is started and stopped again.
 */
import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { Command } from 'commander';
import { finalizeEvent, generateSecretKey } from 'nostr-tools/pure';
import type { Client } from 'pg';
import { type Config, ConfigError, readConfig, unknownVariables } from '../config.js';
import { serializeEvent } from '../core/event.js';
import { checkSetting, isSettingKey } from '../core/settings.js';
import { JOBS } from '../jobs/list.js';
import { dataLockHolder } from '../postgres/data-lock.js';
import { type Database, VERSION_MIN } from '../postgres/database.js';
import { schemaState } from '../postgres/migrate.js';
import { openPostgres } from '../postgres/open.js';
import { machineSize } from '../postgres/server-settings.js';
import { readCommunities } from '../store/communities.js';
import { openAlarms } from '../store/erasure-people.js';
import { listWaiting } from '../store/erasures.js';
import { readHeld, readServerHealth, type ServerHealth } from '../store/health.js';
import { readJobRuns } from '../store/job-runs.js';
import { readSubjectPrint } from '../store/node-state.js';
import { readHead } from '../store/outbox.js';
import { missingPartitions } from '../store/partitions.js';
import { SubjectKey, SubjectKeyMissing } from '../subject-key.js';
import { startVerifier, type VerifyJob } from '../verify/pool.js';
import { SOFTWARE_URL, SOFTWARE_VERSION } from '../version.js';
import { problemsOf, stateText, watchConsumers } from './consumer-words.js';
import { checkCapacity } from './doctor-capacity.js';
import { checkForgotten, checkKeys } from './doctor-keys.js';
import { checkDynamodb, checkRedis } from './doctor-stores.js';
import { type Finding, fail, info, type Level, messageOf, ok, warn } from './finding.js';
import { followerProblems } from './follower-words.js';
import { bytesText, count } from './progress.js';

const NODE_MAJOR_MIN = 20;
const GIB = 1_024 ** 3;
const FREE_BYTES_MIN = GIB;
const FREE_SHARE_MIN = 0.05;
const MEMORY_BYTES_MIN = 512 * 1_024 ** 2;
const CLOCK_APART_MS_MAX = 5_000;
const STATEMENT_MS_MAX = 10_000;
const ANSWER_MS_MAX = 3_000;
const MEASURE_MS = 200;
const MEASURE_BATCH = 256;
const WAITING_SHOWN_MAX = 20;
/** Reader pool, lane, listener, upkeep: what one node opens. */
const CONNECTIONS_PER_NODE = 30;

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check configuration, database, verifier and port, and say what to do about problems')
    .option('--json', 'as one JSON object')
    .addHelpText(
      'after',
      `
Nothing is changed. Exit code: 0 when the node can run (warnings included), 1 when something has FAILed.`,
    )
    .action(async (options: { json?: boolean }) => {
      const findings: Finding[] = [];
      for await (const finding of examine(process.env)) {
        findings.push(finding);
        if (!options.json) process.stdout.write(show(finding));
      }
      const healthy = findings.every(({ level }) => level !== 'fail');
      if (options.json) {
        process.stdout.write(
          `${JSON.stringify({ version: SOFTWARE_VERSION, healthy, findings }, null, 2)}\n`,
        );
      } else process.stdout.write(verdict(findings));
      if (!healthy) process.exitCode = 1;
    });
}

const WORDS: Record<Level, string> = { ok: 'ok  ', info: 'info', warn: 'warn', fail: 'FAIL' };

function show({ level, text, advice }: Finding): string {
  const indented = (lines: string) => lines.replaceAll('\n', '\n     ');
  return `${WORDS[level]} ${indented(text)}\n${advice === undefined ? '' : `     → ${indented(advice)}\n`}`;
}

function verdict(findings: readonly Finding[]): string {
  const times = (level: Level) => findings.filter((finding) => finding.level === level).length;
  if (times('fail') > 0) return `\n${times('fail')} failed, ${times('warn')} to look at\n`;
  return times('warn') > 0 ? `\nThe node can run; ${times('warn')} to look at\n` : '\nAll is well\n';
}

/** Everything that does not need the configuration comes first, so that a bad one still leaves most of the answer. */
async function* examine(env: NodeJS.ProcessEnv): AsyncGenerator<Finding> {
  yield* checkProgram();
  yield* checkMachine();
  yield* guard('the verifier', checkVerifier());
  let config: Config;
  try {
    config = readConfig(env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    yield fail(error.message, 'Correct or unset them; "minato serve --help" lists them all.');
    return;
  }
  yield* checkEnvironment(config);
  const holder = config.databaseUrl === undefined ? await dataLockHolder(config.dataDir) : undefined;
  if (config.databaseUrl === undefined)
    yield* guard('the data folder', checkDataFolder(config.dataDir, holder));
  else yield ok('DATABASE_URL is set: the data folder is not used');
  yield* guard('the database', checkDatabase(config, holder));
  if (config.redisUrl !== undefined) yield* checkRedis(config.redisUrl);
  if (config.dynamodb !== undefined) yield* checkDynamodb(config.dynamodb);
  yield* guard('the port', checkPort(config, holder));
}

/** A check that breaks is a finding, and the others still run. */
async function* guard(what: string, findings: AsyncGenerator<Finding>): AsyncGenerator<Finding> {
  try {
    yield* findings;
  } catch (error) {
    yield fail(
      `${what} could not be checked: ${messageOf(error)}`,
      'Mend this first, then run minato doctor again.',
    );
  }
}

// ─── This program and this machine ─────────────────────────────────────────────────────────────────────────────

function* checkProgram(): Generator<Finding> {
  const node = process.versions.node;
  if (Number.parseInt(node, 10) >= NODE_MAJOR_MIN) yield ok(`Minato ${SOFTWARE_VERSION} on Node.js ${node}`);
  else
    yield fail(
      `Node.js ${node} is too old`,
      `Install Node.js ${NODE_MAJOR_MIN} or newer (https://nodejs.org).`,
    );
}

function* checkMachine(): Generator<Finding> {
  const { memoryBytes, cores } = machineSize();
  const text = `${bytesText(memoryBytes)} of memory, ${cores} ${cores === 1 ? 'core' : 'cores'}`;
  if (memoryBytes >= MEMORY_BYTES_MIN) yield ok(text);
  else yield warn(text, 'Give the node 512 MiB or more: PostgreSQL and the node share them.');
}

async function* checkVerifier(): AsyncGenerator<Finding> {
  const verifier = await startVerifier();
  try {
    const perSecond = await measure((job) => verifier.verify(job));
    const threads = `${verifier.workers} ${verifier.workers === 1 ? 'thread' : 'threads'}`;
    const text = `signatures: ${verifier.backend}, ${threads}, about ${count(perSecond)} a second`;
    if (verifier.backend === 'native') yield ok(text);
    else yield warn(text, NATIVE_ADVICE);
  } finally {
    await verifier.close();
  }
}

const NATIVE_ADVICE = `The native build is several times faster. Install a compiler and Python
(Debian, Ubuntu: apt install build-essential python3; Fedora: dnf install gcc-c++ make python3;
Alpine: apk add build-base python3; macOS: xcode-select --install), then: npm rebuild bcrypto`;

async function measure(verify: (job: VerifyJob) => Promise<string>): Promise<number> {
  const template = { kind: 1, created_at: 1_700_000_000, tags: [], content: 'minato doctor' };
  const job = { payload: serializeEvent(finalizeEvent(template, generateSecretKey())) };
  const startedAt = performance.now();
  let verified = 0;
  while (performance.now() - startedAt < MEASURE_MS) {
    const verdicts = await Promise.all(Array.from({ length: MEASURE_BATCH }, () => verify(job)));
    if (verdicts.some((one) => one !== 'valid')) throw new Error('a right signature was called wrong');
    verified += verdicts.length;
  }
  return Math.round((verified * 1_000) / (performance.now() - startedAt));
}

// ─── What is configured ────────────────────────────────────────────────────────────────────────────────────────

function* checkEnvironment(config: Config): Generator<Finding> {
  yield ok('environment variables are valid');
  const unknown = unknownVariables(process.env);
  if (unknown.length > 0) {
    yield warn(
      `unknown environment variables: ${unknown.join(', ')}`,
      'Are they misspelt? They have no effect.',
    );
  }
  if (config.publicUrl === undefined) {
    yield info(
      'MINATO_PUBLIC_URL is not set',
      'Set it to the address that clients use once the relay is public.',
    );
  }
  if (config.adminPubkeys.length === 0) {
    yield info('MINATO_ADMIN_PUBKEYS is not set', 'Set it to the public keys of the operators, hex or npub.');
  }
}

async function* checkDataFolder(dataDir: string, holder: number | undefined): AsyncGenerator<Finding> {
  const folder = await nearestExisting(resolve(dataDir));
  const exists = folder === resolve(dataDir);
  const writable = await access(folder, constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!writable) {
    const advice = 'Give this user the right to write there, or set MINATO_DATA_DIR to another folder.';
    yield fail(`${folder} cannot be written`, advice);
  } else
    yield ok(exists ? `data folder ${dataDir}` : `data folder ${dataDir} does not exist yet; serve makes it`);
  const { bavail, blocks, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const share = blocks === 0 ? 1 : bavail / blocks;
  const text = `${bytesText(free)} free on the disk of the data folder (${Math.floor(share * 100)} %)`;
  if (free >= FREE_BYTES_MIN && share >= FREE_SHARE_MIN) yield ok(text);
  else yield warn(text, 'Free some space or move the data folder: PostgreSQL stops when its disk is full.');
  if (holder !== undefined) yield ok(`the data folder is in use by process ${holder}`);
  else if (exists) yield info('no node is running on the data folder');
}

async function nearestExisting(folder: string): Promise<string> {
  for (let at = folder; ; at = dirname(at)) {
    if (at === dirname(at) || (await exists(at))) return at;
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}

// ─── The database ──────────────────────────────────────────────────────────────────────────────────────────────

async function* checkDatabase(config: Config, holder: number | undefined): AsyncGenerator<Finding> {
  const { databaseUrl, dataDir } = config;
  if (
    databaseUrl === undefined &&
    holder === undefined &&
    !(await exists(join(dataDir, 'postgres', 'PG_VERSION')))
  ) {
    yield info(`there is no database in ${dataDir} yet`, 'The first "minato serve" makes it.');
    return;
  }
  const heard: string[] = [];
  const listen = (message: string): void => void heard.push(message);
  const log = { info: () => undefined, warn: listen, error: listen };
  const opened = await openPostgres({ databaseUrl, dataDir, log, attach: true });
  try {
    const client = await opened.database.connect({ statementTimeoutMs: STATEMENT_MS_MAX }).catch(messageOf);
    if (typeof client === 'string') {
      const advice = databaseUrl === undefined ? EMBEDDED_ADVICE : REACH_ADVICE;
      yield fail(`${opened.where} does not answer: ${client}`, advice);
      return;
    }
    try {
      yield* checkServer(client, opened.where);
      yield* checkSchema(client, opened.database, config);
    } finally {
      await client.end();
    }
  } finally {
    await opened.close();
    for (const message of heard) yield warn(message, 'PostgreSQL itself said so while it was checked.');
  }
}

const REACH_ADVICE =
  'Check DATABASE_URL: host, port, user, password and database; and that the server runs and lets this machine in.';
const EMBEDDED_ADVICE = 'Stop the node, start it again and look at its log.';

async function* checkServer(client: Client, where: string): AsyncGenerator<Finding> {
  const askedAt = Date.now();
  const health = await readServerHealth(client);
  const ours = (askedAt + Date.now()) / 2;
  if (health.versionNumber >= VERSION_MIN) yield ok(`PostgreSQL ${health.version}, ${where}`);
  else {
    const advice = 'Upgrade it to version 15 or newer, or unset DATABASE_URL to use the embedded one.';
    yield fail(`PostgreSQL ${health.version} is too old, ${where}`, advice);
  }
  yield* checkDurability(health);
  const apartMs = Math.round(Math.abs(health.clock - ours));
  if (apartMs <= CLOCK_APART_MS_MAX) yield ok(`the clocks of node and database are ${apartMs} ms apart`);
  else {
    const advice = 'Set both machines by NTP: created_at limits and partitions go by the clock of the node.';
    yield warn(`the clocks of node and database are ${Math.round(apartMs / 1_000)} s apart`, advice);
  }
  const { connections, connectionsMax } = health;
  if (connectionsMax - connections >= CONNECTIONS_PER_NODE) {
    yield ok(`${connections} of ${connectionsMax} connections in use`);
  } else {
    const advice = `Raise max_connections: a node opens up to ${CONNECTIONS_PER_NODE}.`;
    yield warn(`${connections} of ${connectionsMax} connections in use`, advice);
  }
  yield ok(`the database holds ${bytesText(health.databaseBytes)}`);
}

type Durability = Pick<ServerHealth, 'fsync' | 'fullPageWrites' | 'synchronousCommit' | 'checksums'>;

export function* checkDurability(health: Durability): Generator<Finding> {
  const { fsync, fullPageWrites, synchronousCommit, checksums } = health;
  const off = [fsync ? [] : ['fsync'], fullPageWrites ? [] : ['full_page_writes']].flat();
  if (off.length > 0) {
    const advice = `ALTER SYSTEM SET ${off[0]} = on; then reload PostgreSQL. Until then a power cut can destroy the database.`;
    yield fail(`${off.join(' and ')} off: what was accepted can be lost`, advice);
  } else if (synchronousCommit === 'off') {
    const advice =
      'Events are safe, the lane asks for it itself. For settings too: ALTER SYSTEM SET synchronous_commit = on;';
    yield warn('synchronous_commit is off', advice);
  } else {
    const settings = `fsync on, full_page_writes on, synchronous_commit ${synchronousCommit}`;
    yield ok(`durable: ${settings}, checksums ${checksums ? 'on' : 'off'}`);
  }
}

async function* checkSchema(client: Client, database: Database, config: Config): AsyncGenerator<Finding> {
  const { applied, pending, unknown } = await schemaState(client);
  if (unknown.length > 0) {
    const advice = 'Start a newer Minato, or restore a backup made with this one.';
    yield fail(`the schema is newer than this program: it has ${unknown.join(', ')}`, advice);
  }
  if (pending.length > 0) {
    yield warn(`the schema lacks ${pending.join(', ')}`, 'Run "minato migrate"; "minato serve" does it too.');
  }
  if (applied.length === 0 || pending.length > 0) return;
  if (unknown.length === 0) yield ok(`schema up to date (${applied.at(-1)})`);
  const missing = await missingPartitions(client, Date.now());
  if (missing.length === 0) yield ok('partitions of this month and the next are there');
  else
    yield warn(
      `partitions are missing: ${missing.join(', ')}`,
      'A running node makes them within a minute; start it.',
    );
  for (const { slug, events, bytes } of await readHeld(client)) {
    yield ok(`community ${slug}: ${count(events)} events kept, ${bytesText(bytes)}`);
  }
  yield ok(`outbox at ${count(await readHead(client))}`);
  yield* checkSettings(client);
  yield* checkCapacity(client);
  yield* checkConsumers(client);
  yield* checkJobs(client);
  for (const { text, advice } of await followerProblems(client)) yield warn(text, advice);
  yield* checkKeys(database, config.dataDir);
  yield* checkErasures(client, database, config);
}

/** Those that wait for the operator, and the key without which a node does not start. */
async function* checkErasures(
  client: Client,
  { pool }: Database,
  { dataDir, erasureKey }: Config,
): AsyncGenerator<Finding> {
  const waiting = await listWaiting(client, WAITING_SHOWN_MAX);
  for (const { erasureId, slug, holdReason, heldAt, failures } of waiting) {
    if (heldAt !== null)
      yield warn(
        `community ${slug}: erasure ${erasureId} is held (${holdReason})`,
        `When the duty is over: minato erase release ${erasureId}`,
      );
    else
      yield warn(
        `community ${slug}: erasure ${erasureId} failed in ${Object.keys(failures).join(', ')}`,
        `See why with "minato erase show ${erasureId}", mend it, then: minato erase retry ${erasureId}`,
      );
  }
  for (const { slug, store, found, at } of await openAlarms(client))
    yield fail(
      `community ${slug ?? 'that is gone'}: ${store} holds ${count(found)} of one who was erased, since ${new Date(at).toISOString().slice(0, 10)}`,
      'It came back behind the node, as by a restored backup: minato erase replay',
    );
  yield* checkForgotten(pool, dataDir);
  const print = await readSubjectPrint(client);
  if (print === undefined) return;
  const key = new SubjectKey({ folder: dataDir, given: erasureKey });
  try {
    await key.load(print);
    key.check(print);
    yield ok('the key of the erased is here');
  } catch (error) {
    if (!(error instanceof SubjectKeyMissing)) throw error;
    yield fail(error.message, 'Without it the node does not start: it could not tell who was erased.');
  }
}

async function* checkConsumers(client: Client): AsyncGenerator<Finding> {
  for (const state of await watchConsumers(client, Date.now)) {
    const problems = problemsOf(state);
    for (const { text, advice } of problems) yield warn(`consumer ${text}`, advice);
    if (problems.length === 0) yield ok(`consumer ${state.consumer}: ${stateText(state)}`);
  }
}

/** Those whose last run failed. One that an older version had and this one has not is not looked at. */
async function* checkJobs(client: Client): AsyncGenerator<Finding> {
  const names = new Set(JOBS.map(({ name }) => name));
  const runs = (await readJobRuns(client)).filter(({ job }) => names.has(job));
  const failed = runs.filter(({ error }) => error !== null);
  for (const { job, startedAt, finishedAt, error } of failed)
    yield warn(
      `job ${job} failed at ${new Date(finishedAt ?? startedAt).toISOString().slice(0, 16)}Z: ${error}`,
      `Fix what the error names. It runs again at its next time; to run it now: minato jobs run ${job}`,
    );
  if (failed.length === 0) yield ok(`no job failed at its last run (${count(runs.length)} have run)`);
}

async function* checkSettings(client: Client): AsyncGenerator<Finding> {
  let problems = 0;
  for (const { slug, settings } of await readCommunities(client)) {
    for (const [key, value] of settings) {
      const checked = isSettingKey(key) ? checkSetting(key, value) : undefined;
      if (checked === undefined) {
        yield info(
          `community ${slug}: the stored setting ${key} is unknown to this version and has no effect`,
        );
      } else if ('problem' in checked) {
        problems += 1;
        const advice = `Its default is in force. Run "minato settings set ${key} VALUE -c ${slug}" or "minato settings reset ${key} -c ${slug}".`;
        yield warn(`community ${slug}: the stored setting is no longer valid: ${checked.problem}`, advice);
      }
    }
  }
  if (problems === 0) yield ok('stored settings are valid');
}

// ─── The port ──────────────────────────────────────────────────────────────────────────────────────────────────

const WILDCARDS: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

async function* checkPort({ host, port }: Config, holder: number | undefined): AsyncGenerator<Finding> {
  const where = `${host}:${port}`;
  if (port === 0) {
    yield info('MINATO_PORT is 0: the node takes any free port, so it cannot be asked here');
    return;
  }
  const target = WILDCARDS[host] ?? host;
  const base = `http://${target.includes(':') ? `[${target}]` : target}:${port}`;
  const ready = await ask(`${base}/readyz`, 'application/json');
  if (ready === undefined) {
    if (holder === undefined) yield info(`nothing answers at ${where}: no node is running there`);
    else {
      const advice =
        'A node that has just started, another port, or a long command such as import. Else look at its log.';
      yield warn(`process ${holder} holds the data folder, but nothing answers at ${where}`, advice);
    }
    return;
  }
  const about = await ask(`${base}/`, 'application/nostr+json');
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
      EMBEDDED_ADVICE,
    );
  if (version !== SOFTWARE_VERSION) {
    yield warn(
      `it runs ${String(version)}, installed is ${SOFTWARE_VERSION}`,
      'Restart the node to run what is installed.',
    );
  }
}

interface Answer {
  readonly code: number;
  /** Undefined when it is not JSON. */
  readonly body: unknown;
}

/** Undefined when nobody listens. Something that listens and speaks no HTTP is an answer without sense. */
async function ask(url: string, accept: string): Promise<Answer | undefined> {
  try {
    const response = await fetch(url, { headers: { accept }, signal: AbortSignal.timeout(ANSWER_MS_MAX) });
    const body: unknown = await response.json().catch(() => undefined);
    return { code: response.status, body };
  } catch (error) {
    const cause = (error as { cause?: { code?: string } }).cause;
    return ['ECONNREFUSED', 'EHOSTUNREACH', 'EADDRNOTAVAIL', 'ENOTFOUND'].includes(cause?.code ?? '')
      ? undefined
      : { code: 0, body: undefined };
  }
}
