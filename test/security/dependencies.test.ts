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

/**
 * What `npm audit --json` says about a registry without this service, or that cannot be reached. Undefined:
 * it has answered.
 */
function whyNoAudit(answer: unknown): string | undefined {
  const { statusCode, message } = answer as { statusCode?: unknown; message?: unknown };
  if (typeof message !== 'string') return undefined;
  if (statusCode === 404 || statusCode === 405) return `the registry has no audit: ${message}`;
  const isOffline = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|network timeout)\b/;
  return isOffline.test(message) ? `the registry cannot be reached: ${message}` : undefined;
}

describe('the audit of the registry', () => {
  it('knows no high or critical vulnerability of what is shipped', async ({ skip }) => {
    // Offline, npm would find nothing without asking.
    const asking = ['--offline=false', '--fetch-retries=0', '--fetch-timeout=30000'];
    const args = ['audit', '--json', '--omit=dev', '--audit-level=none', ...asking];
    const { stdout } = await run('npm', args, {
      cwd: ROOT,
      maxBuffer: 64 * 1_048_576,
      timeout: ANSWER_MS_MAX,
    }).catch((error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }));
    const answer: unknown = JSON.parse(stdout);
    const why = whyNoAudit(answer);
    if (why !== undefined) {
      console.warn(`npm audit: ${why}`);
      skip(why);
    }
    expect(answer).toMatchObject({ metadata: { vulnerabilities: { high: 0, critical: 0 } } });
  });

  it('is left out only if the registry has none or cannot be reached', () => {
    expect(whyNoAudit({ statusCode: 405, message: '405 Method Not Allowed' })).toContain('405');
    expect(whyNoAudit({ message: 'request to https://x failed, reason: getaddrinfo ENOTFOUND x' })).toContain(
      'cannot be reached',
    );
    for (const odd of [{}, [], { statusCode: 500, message: '500 Internal Server Error' }, { message: 'x' }])
      expect(whyNoAudit(odd)).toBeUndefined();
  });
});
