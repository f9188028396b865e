/**
 * Dependencies: a software bill of materials can be made, every package has a licence that goes with this
 * project's, and the registry knows no vulnerability, where it has an audit.
 */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const ANSWER_MS_MAX = 60_000;
/** It is kept after the run, and git ignores it. */
const BILLS = join(ROOT, 'node_modules/.cache/minato');

interface Component {
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly {
    readonly license?: { readonly id?: string; readonly name?: string };
    readonly expression?: string;
  }[];
}

/** Permissive, or bound to the files of the package itself (MPL). */
const COMPATIBLE = new Set(
  [
    '0BSD Apache-2.0 BlueOak-1.0.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC MIT MIT-0 MPL-2.0 PostgreSQL',
    'Python-2.0 Unlicense Zlib',
  ].flatMap((line) => line.split(' ')),
);
/** Packages that name no licence in package.json, and have it in their file LICENSE. */
const READ_BY_HAND: Readonly<Record<string, string>> = {
  '@nostrify/nostrify': 'MIT',
  '@nostrify/types': 'MIT',
  'nostr-relaypool': 'MIT',
};
/**
 * Installed for tests only and not part of what is published: another package asks for them, and no test
 * loads them.
 */
const NOT_SHIPPED = ['@codesandbox/nodebox', 'flags'];

/** With `OR` one part is enough, with `AND` all of them are needed. */
function isCompatible(expression: string): boolean {
  const text = expression.replace(/[()]/g, ' ').trim();
  if (/ AND /.test(text)) return text.split(/ AND /).every(isCompatible);
  return text.split(/ OR /).some((one) => COMPATIBLE.has(one.trim()));
}

const licenceOf = ({ name, licenses = [] }: Component): string =>
  licenses.map(({ license, expression }) => expression ?? license?.id ?? license?.name ?? '').join(' AND ') ||
  (READ_BY_HAND[name] ?? 'none');

/** Makes one in BILLS; docs/security.md says where. */
async function billOf(file: string, ...more: readonly string[]): Promise<readonly Component[]> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', ...more];
  const { stdout } = await run('npm', args, { cwd: ROOT, maxBuffer: 64 * 1_048_576, timeout: ANSWER_MS_MAX });
  await mkdir(BILLS, { recursive: true });
  await writeFile(join(BILLS, file), stdout);
  return (JSON.parse(stdout) as { components: readonly Component[] }).components;
}

let components: readonly Component[];
let shipped: readonly Component[];
beforeAll(async () => {
  [components, shipped] = await Promise.all([
    billOf('sbom-all.cdx.json'),
    billOf('sbom.cdx.json', '--omit', 'dev'),
  ]);
});

describe('the bill of materials', () => {
  it('names every package that is installed, with its version and address', () => {
    expect(components.length).toBeGreaterThan(100);
    expect(components.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['fastify', 'pg', 'ws', 'zod', 'vitest']),
    );
    expect(components.filter(({ version, purl }) => !version || !purl?.startsWith('pkg:npm/'))).toEqual([]);
  });

  it('has only licences that go with the licence of this project', () => {
    const wrong = (list: readonly Component[]) =>
      list.filter((one) => !isCompatible(licenceOf(one))).map(({ name }) => name);
    expect(shipped.length).toBeGreaterThan(50);
    expect(wrong(shipped)).toEqual([]);
    expect(wrong(components).sort()).toEqual(NOT_SHIPPED);
  });

  it('would find one that does not', () => {
    expect(isCompatible('GPL-3.0-only')).toBe(false);
    expect(isCompatible('(MIT OR GPL-3.0-only)')).toBe(true);
    expect(isCompatible('MIT AND AGPL-3.0-only')).toBe(false);
    expect(isCompatible('none')).toBe(false);
  });
});

interface AuditRun {
  readonly stdout: string;
  /** It did not end by itself. */
  readonly killed?: boolean | undefined;
}

const OFFLINE = new RegExp(
  [
    'E(NOTFOUND|AI_AGAIN|CONN(REFUSED|RESET|ABORTED)|HOSTUNREACH|NETUNREACH|TIMEDOUT|PIPE)\\b',
    '[Tt]imeout',
    // Where every address of the registry fails, Node.js gives no reason.
    'failed, reason: *$',
  ].join('|'),
);

/**
 * What `npm audit --json` says about a registry without this service, or that cannot be reached. Undefined:
 * it has answered.
 */
function whyNoAudit({ stdout, killed = false }: AuditRun): string | undefined {
  if (killed || stdout.trim() === '') return 'the registry cannot be reached: npm has no answer';
  const { statusCode, message } = JSON.parse(stdout) as { statusCode?: unknown; message?: unknown };
  if (typeof message !== 'string') return undefined;
  if (statusCode === 404 || statusCode === 405) return `the registry has no audit: ${message}`;
  if (statusCode !== undefined) return undefined;
  return OFFLINE.test(message) ? `the registry cannot be reached: ${message}` : undefined;
}

describe('the audit of the registry', () => {
  it('knows no high or critical vulnerability of what is shipped', async ({ skip }) => {
    // Offline, npm would find nothing without asking. It asks two addresses, one after the other.
    const asking = ['--offline=false', '--fetch-retries=0', '--fetch-timeout=25000'];
    const args = ['audit', '--json', '--omit=dev', '--audit-level=none', ...asking];
    const audit: AuditRun = await run('npm', args, {
      cwd: ROOT,
      maxBuffer: 64 * 1_048_576,
      timeout: ANSWER_MS_MAX,
    }).catch(({ stdout = '', killed }: Partial<AuditRun>) => ({ stdout, killed }));
    const why = whyNoAudit(audit);
    if (why !== undefined) {
      console.warn(`npm audit: ${why}`);
      skip(why);
    }
    expect(JSON.parse(audit.stdout)).toMatchObject({
      metadata: { vulnerabilities: { high: 0, critical: 0 } },
    });
  });

  const failed = (reason: string) => ({
    stdout: JSON.stringify({ message: `request to https://x/-/npm failed, reason: ${reason}`, error: {} }),
  });

  it.each([
    ['the registry has no audit', { stdout: '{"statusCode": 405, "message": "405 Method Not Allowed"}' }],
    ['its name is not known', failed('getaddrinfo ENOTFOUND x')],
    ['its host cannot be reached', failed('connect EHOSTUNREACH 192.0.2.1:443')],
    ['its network cannot be reached', failed('connect ENETUNREACH 2001:db8::1:443 - Local (:::0)')],
    ['none of its addresses can be reached', failed('')],
    ['it does not answer npm', { stdout: '{"message": "network timeout at: https://x/-/npm"}' }],
    ['it does not answer in time', { stdout: '', killed: true }],
    ['npm was ended in the middle of its output', { stdout: '{"auditReport', killed: true }],
    ['npm says nothing', { stdout: '' }],
  ])('is left out if %s', (_why, audit) => {
    expect(whyNoAudit(audit)).toMatch(/^the registry (has no audit|cannot be reached): ./);
  });

  it.each([
    '{}',
    '[]',
    '{"statusCode": 500, "message": "500 Internal Server Error"}',
    '{"statusCode": 504, "message": "504 Gateway Timeout"}',
    '{"message": "x"}',
    failed('certificate has expired').stdout,
  ])('is not left out after %s', (stdout) => {
    expect(whyNoAudit({ stdout })).toBeUndefined();
  });
});
