/** The command `minato peers`: the relays that a community exchanges events with on a schedule. */
import { Command, InvalidArgumentError } from 'commander';
import { granted, oneOf, timeText, wholeNumber } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { count } from '../cli/progress.js';
import { checkSetting } from '../communities/rules-settings.js';
import { changeSetting, readSetting } from '../communities/settings.sql.js';
import type { Database } from '../postgres/database.js';
import { topicArguments } from './command.js';
import { isDue, MINUTES_MAX, peerUrl, type SyncPeer } from './rules-peers.js';
import { deleteRun, readRuns, type SyncRun } from './sync.sql.js';

const KEY = 'sync.peers';
const EVERY_MINUTES = 15;

interface CommunityOption {
  community: string;
}

interface AddOptions extends CommunityOption {
  direction: SyncPeer['direction'];
  every: number;
  topic?: string[];
}

export function peersCommand(): Command {
  const peers = new Command('peers').description(
    'relays that a community exchanges events with on a schedule, by a running node (setting sync.peers)',
  );
  peers
    .command('list', { isDefault: true })
    .description('show the peers, when each was synced last, and how that ended')
    .option(...COMMUNITY_OPTION)
    .option('--json', 'print one JSON object for each')
    .action((options: CommunityOption & { json?: true }) => list(options));
  peers
    .command('add <url>')
    .description('add a peer, or change how it is synced')
    .option(...COMMUNITY_OPTION)
    .option(
      '--direction <way>',
      'down: fetch, up: send, both',
      oneOf(['down', 'up', 'both'] as const),
      'down',
    )
    .option('--every <minutes>', 'minutes between two syncs', wholeNumber(1, MINUTES_MAX), EVERY_MINUTES)
    .option('--topic <id>', 'only this topic; may be given several times', topicArguments)
    .addHelpText(
      'after',
      `
A running node with the role worker syncs with each peer on its schedule, at low priority: it stops while
capacity is short. An address of this machine or of a private network is used only if node.syncPrivatePeers
is true.

Example:
  $ minato peers add wss://relay.example.org --direction both --every 30`,
    )
    .action((url: string, options: AddOptions) => add(urlOf(url), options));
  peers
    .command('remove <url>')
    .description('stop syncing with a peer; events stay')
    .option(...COMMUNITY_OPTION)
    .action((url: string, options: CommunityOption) => remove(urlOf(url), options));
  return peers;
}

function urlOf(text: string): string {
  const url = peerUrl(text);
  if (url === undefined) throw new InvalidArgumentError('the url must be a ws:// or wss:// address');
  return url;
}

async function list({ community: slug, json }: CommunityOption & { json?: true }): Promise<void> {
  await withCommunity(slug, async ({ database }, { id, settings }) => {
    const runs = new Map((await readRuns(database.pool, id)).map((run) => [run.url, run]));
    const peers = settings[KEY];
    if (json) {
      for (const peer of peers)
        process.stdout.write(`${JSON.stringify({ ...peer, last: runs.get(peer.url) ?? null })}\n`);
      return;
    }
    for (const peer of peers) process.stdout.write(`${line(peer, runs.get(peer.url))}\n`);
    if (peers.length === 0)
      process.stdout.write('No peers; "minato peers add wss://relay.example.org" adds one.\n');
  });
}

function line(peer: SyncPeer, run: SyncRun | undefined): string {
  const { url, direction, everyMinutes, topics } = peer;
  const what = topics.length === 0 ? 'everything' : `${count(topics.length)} topics`;
  return `${url}  ${direction}, every ${count(everyMinutes)} min, ${what}; ${lastText(peer, run)}`;
}

function lastText(peer: SyncPeer, run: SyncRun | undefined): string {
  if (run === undefined) return 'not synced yet';
  const { startedAt, finishedAt, outcome, counts } = run;
  if (finishedAt === null) return `running since ${timeText(startedAt)}`;
  const { stored = 0, sent = 0 } = counts;
  const due = isDue(peer, startedAt, Date.now()) ? ', due' : '';
  return `${timeText(finishedAt)}: ${outcome}, ${count(stored)} stored, ${count(sent)} sent${due}`;
}

async function add(
  url: string,
  { community: slug, direction, every, topic = [] }: AddOptions,
): Promise<void> {
  const peer: SyncPeer = { url, direction, everyMinutes: every, topics: topic };
  await change(slug, (peers) => [...peers.filter((known) => known.url !== url), peer]);
  process.stdout.write(`${line(peer, undefined)}\n`);
}

async function remove(url: string, { community: slug }: CommunityOption): Promise<void> {
  await change(slug, (peers) => {
    if (!peers.some((known) => known.url === url)) throw new Error(`${url} is not a peer`);
    return peers.filter((known) => known.url !== url);
  });
  await withCommunity(slug, ({ database }, { id }) => deleteRun(database.pool, id, url));
  process.stdout.write(`${url} is no longer a peer\n`);
}

/** Over the version that was read, so that two changes at once do not undo each other. */
async function change(slug: string, to: (peers: readonly SyncPeer[]) => readonly SyncPeer[]): Promise<void> {
  await withCommunity(slug, async ({ database }, { id }) => {
    const { pool }: Pick<Database, 'pool'> = database;
    const { value, version } = await readSetting(pool, id, KEY);
    const checked = checkSetting(KEY, to(value as readonly SyncPeer[]));
    if ('problem' in checked) throw new Error(checked.problem);
    const changed = { community: id, key: KEY, value: checked.value, seenVersion: version } as const;
    granted(await changeSetting(pool, changed, Date.now()));
  });
}
