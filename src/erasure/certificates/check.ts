/**
 * Checks certificates of erasures without a node: id and signature, content, and that each follows the one
 * that it names. Only a machine with the erasure key can tell whether one is about a certain person.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { npubEncode } from 'nostr-tools/nip19';
import { timeText } from '../../cli/answers.js';
import { count } from '../../cli/progress.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { SubjectKey } from '../../keys/subject-key.js';
import { readConfig } from '../../node/config.js';
import { documentsOf, readDocument } from './files.js';
import { type Certificate, rowsOf } from './rules.js';

const FILE_BYTES_MAX = 64 * 1_048_576;
const FILES_MAX = 100_000;
/** The hash includes the id of the community, which is not in the certificate: all of them are tried. */
const COMMUNITIES_MAX = 10_000;

export interface VerifyOptions {
  /** Any of them may have signed, because keys are rotated. */
  readonly key?: readonly string[];
  readonly subject?: string;
  readonly community?: string;
}

export interface Checked {
  readonly lines: readonly string[];
  readonly problems: readonly string[];
}

interface Given {
  /** The file, and the line where it has several. */
  readonly where: string;
  readonly event: NostrEvent;
  readonly certificate?: Certificate | undefined;
  /** What is wrong with it alone. */
  readonly problems: readonly string[];
}

export async function checkFiles(paths: readonly string[], options: VerifyOptions): Promise<Checked> {
  const problems: string[] = [];
  const given: Given[] = [];
  for (const path of (await Promise.all(paths.map(filesAt))).flat())
    for (const [where, text] of await documentsIn(path)) {
      const read = readOne(where, text, options);
      if ('event' in read) given.push(read);
      problems.push(...read.problems.map((problem) => `${where}: ${problem}`));
    }
  if (given.length + problems.length === 0) problems.push('there is no certificate in it');
  problems.push(...chainProblems(given));
  const isAbout = await aboutSubject(options, given);
  // The content of an invalid certificate is not printed.
  const lines = given.flatMap((one) =>
    one.certificate === undefined || one.problems.length > 0 ? [] : [lineOf(one, one.certificate, isAbout)],
  );
  const known = given.flatMap(({ certificate }) => certificate ?? []);
  if (isAbout !== undefined && !known.some(isAbout))
    problems.push('none of them is about this key (or it was made with another erasure key)');
  return { lines: [...lines, ...verdict(given, problems, options)], problems };
}

function verdict(given: readonly Given[], problems: readonly string[], { key }: VerifyOptions): string[] {
  if (problems.length > 0) return [];
  const signers = [...new Set(given.map(({ event }) => npubEncode(event.pubkey)))];
  const whose = key === undefined ? ' (is that the node? --key checks it)' : '';
  return [
    given.length === 1
      ? 'the certificate holds'
      : `all ${count(given.length)} certificates hold, none is missing between them`,
    `signed by ${signers.join(', ')}${whose}`,
  ];
}

function lineOf(
  { event }: Given,
  certificate: Certificate,
  isAbout: ((certificate: Certificate) => boolean) | undefined,
): string {
  const { completed_at, erasure_id, community, subject, stores } = certificate;
  const deleted = rowsOf(certificate).reduce((all, store) => all + store.deleted, 0);
  const about = isAbout === undefined ? '' : isAbout(certificate) ? '  about this key' : '  about another';
  const what =
    `${subject.type} of ${community}, ${count(deleted)} rows, ` +
    `${count(stores.length)} stores at 0${unacknowledgedText(certificate)}`;
  return `${timeText(completed_at)}  ${erasure_id}  ${event.id.slice(0, 16)}  ${what}${about}`;
}

function unacknowledgedText(certificate: Certificate): string {
  if (certificate.version === 1 || certificate.unacknowledged.length === 0) return '';
  const followers = certificate.unacknowledged.map(
    ({ name, acknowledged, needed }) => `${name} (${count(acknowledged)} of ${count(needed)})`,
  );
  return `, not acknowledged by ${followers.join(', ')}`;
}

// ── Reading ────────────────────────────────────────────────────────────────────────────────────────────────

async function filesAt(path: string): Promise<string[]> {
  const about = await stat(path).catch(() => undefined);
  if (about === undefined) throw new Error(`${path} cannot be read`);
  if (!about.isDirectory()) {
    if (about.size > FILE_BYTES_MAX) throw new Error(`${path} is too large for certificates`);
    return [path];
  }
  const names = (await readdir(path)).filter((name) => /\.jsonl?$/.test(name)).sort();
  if (names.length === 0) throw new Error(`there is no certificate in ${path} (no .json and no .jsonl)`);
  if (names.length > FILES_MAX) throw new Error(`${path} has more than ${count(FILES_MAX)} files`);
  return names.map((name) => join(path, name));
}

async function documentsIn(path: string): Promise<[string, string][]> {
  const documents = documentsOf(await readFile(path, 'utf8'));
  return documents.map(({ line, text }) => [line === undefined ? path : `${path}:${line}`, text]);
}

function readOne(where: string, text: string, { key }: VerifyOptions): Given | Pick<Given, 'problems'> {
  const { event, certificate, problems } = readDocument(text);
  if (event === undefined) return { problems };
  const isAnothers = key !== undefined && !key.includes(event.pubkey);
  const signer = isAnothers
    ? [`it is signed by ${npubEncode(event.pubkey)}, not by ${key.map(npubEncode).join(' or ')}`]
    : [];
  return { where, event, certificate, problems: [...problems, ...signer] };
}

// ── The chain ──────────────────────────────────────────────────────────────────────────────────────────────

type Link = Given & { readonly certificate: Certificate };

/**
 * The oldest may have none before it; every other one follows one of those given, and no two follow the same.
 */
function chainProblems(given: readonly Given[]): string[] {
  const links = given.flatMap(({ certificate, ...one }) => (certificate ? [{ ...one, certificate }] : []));
  const byId = new Map(links.map((link) => [link.event.id, link]));
  const before = ({ certificate: { previous } }: Link) =>
    previous === null ? undefined : byId.get(previous);
  const all = [...byId.values()].sort((a, b) => a.certificate.completed_at - b.certificate.completed_at);
  const [, ...alsoFirst] = all.filter((link) => before(link) === undefined);
  return [
    ...alsoFirst.map(missing),
    ...all.flatMap((link) => linkProblems(link, before(link))),
    ...forks(all),
  ];
}

function missing({ where, certificate: { previous } }: Link): string {
  return previous === null
    ? `${where}: it says that it is the first one, and it is not`
    : `${where}: the certificate before it (${previous.slice(0, 16)}…) is missing`;
}

function linkProblems({ where, event, certificate }: Link, before: Link | undefined): string[] {
  const named = event.tags.find(([name]) => name === 'previous')?.[1] ?? null;
  return [
    ...(named === certificate.previous ? [] : [`${where}: it names two different certificates before it`]),
    ...(before !== undefined && before.certificate.completed_at > certificate.completed_at
      ? [`${where}: it is older than the certificate before it`]
      : []),
  ];
}

function forks(links: readonly Link[]): string[] {
  const followers = new Map<string, string>();
  return links.flatMap(({ where, certificate: { previous } }) => {
    if (previous === null) return [];
    const other = followers.get(previous);
    followers.set(previous, where);
    return other === undefined ? [] : [`${where}: it follows the same certificate as ${other}`];
  });
}

// ── Whom it is about ───────────────────────────────────────────────────────────────────────────────────────

async function aboutSubject(
  { subject, community }: VerifyOptions,
  given: readonly Given[],
): Promise<((certificate: Certificate) => boolean) | undefined> {
  if (subject === undefined) return undefined;
  const { dataDir, erasureKey } = readConfig(process.env);
  const path = new SubjectKey({ folder: dataDir }).path;
  const hashes = new Set<string>();
  // Each certificate names the fingerprint of its key. This machine may have got that key from another one.
  const fingerprints = new Set(given.flatMap(({ certificate }) => certificate?.subject.key ?? []));
  let found = 0;
  for (const fingerprint of fingerprints) {
    const key = new SubjectKey({ folder: dataDir, given: erasureKey });
    if (!(await key.load(fingerprint))) continue;
    found += 1;
    for (let number = 1; number <= COMMUNITIES_MAX; number += 1)
      hashes.add(key.hash(number, subject).toString('hex'));
  }
  if (found === 0 && fingerprints.size > 0)
    throw new Error(
      '--subject needs the erasure key that these certificates were made with: ' +
        `${path} (or erasure-….key beside it), or MINATO_ERASURE_KEY`,
    );
  return (certificate) =>
    certificate.subject.type === 'member' &&
    (community === undefined || certificate.community === community) &&
    hashes.has(certificate.subject.hash);
}
