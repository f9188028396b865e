/**
 * The part of `minato doctor` about space: the capacity step of each community, and of each topic with limits
 * of its own.
 */
import type { Client } from 'pg';
import { readCommunities } from '../communities/communities.sql.js';
import { readNodeSettings } from '../communities/node-settings.sql.js';
import { settingsFrom } from '../communities/rules-settings.js';
import { readSize, readSteps, type Scope, type StepRow, WHOLE } from '../events/postgres/capacity.js';
import {
  communityLimits,
  FULL_WORDS,
  hasLimit,
  type Limits,
  type Size,
  STEP_WORDS,
  TOPIC_STEP_WORDS,
  topicLimits,
} from '../events/rules/capacity.js';
import { type Finding, info, ok, warn } from '../health/finding.js';
import { readDisk } from '../node/disk.js';
import { DISK_UNKNOWN, DISK_WORDS } from '../node/rules-disk.js';
import { readTopics } from '../topics/topics.sql.js';
import { bytesText, count } from './progress.js';

/** Topics in step 0 that are shown one by one; the others are only counted. */
const FINE_TOPICS_MAX = 20;

/** A line for each community, and one for each topic that has limits of its own or is in a step. */
export async function* checkCapacity(client: Client): AsyncGenerator<Finding> {
  const steps = await readSteps(client);
  const topics = await readTopics(client);
  const node = await readNodeSettings(client);
  for (const { id, slug, settings } of await readCommunities(client)) {
    const own = steps.filter(({ community }) => community === id);
    const lag = own.find(({ cause }) => cause === 'lag');
    if (lag !== undefined)
      yield warn(
        `community ${slug}: a consumer of the outbox is far behind, step ${lag.step} of 2: ` +
          `${STEP_WORDS[lag.step]}, ${sinceText(lag.since)}`,
        LAG_ADVICE,
      );
    const space = own.filter(({ cause }) => cause === 'space');
    const limits = communityLimits(settingsFrom(settings, node));
    const whole = { community: id, topic: WHOLE };
    yield await spaceLine(client, { where: `community ${slug}`, slug, scope: whole, limits }, space);
    const limited = [...(topics.get(id) ?? [])].filter(([, { policy }]) => hasLimit(topicLimits(policy)));
    const inStep = space.flatMap(({ topic }) => (topic === WHOLE ? [] : [topic]));
    const fine = limited.map(([topic]) => topic).filter((topic) => !inStep.includes(topic));
    for (const topic of [...inStep, ...fine.slice(0, FINE_TOPICS_MAX)]) {
      const ofTopic = topicLimits(topics.get(id)?.get(topic)?.policy ?? {});
      const where = `community ${slug}, topic ${JSON.stringify(topic)}`;
      const scope = { community: id, topic };
      yield await spaceLine(client, { where, slug, scope, limits: ofTopic }, space);
    }
    if (fine.length > FINE_TOPICS_MAX)
      yield ok(
        `community ${slug}: ${count(fine.length - FINE_TOPICS_MAX)} more topics with limits in step 0`,
      );
  }
}

/** Compares the free space with the settings of the node. Without a folder the database is elsewhere. */
export async function* checkDisk(client: Client, folder: string | undefined): AsyncGenerator<Finding> {
  if (folder === undefined) {
    yield info(
      'the free space of the disk behind DATABASE_URL is unknown here',
      'Monitor it on its own machine, and limit what is kept: capacity.maxBytes, or node.capacity.maxBytes ' +
        'for every community.',
    );
    return;
  }
  const {
    level,
    freeBytes = 0,
    minBytes,
  } = await readDisk(folder, await readNodeSettings(client), DISK_UNKNOWN);
  const text =
    `${bytesText(freeBytes)} free, ${bytesText(Math.ceil(minBytes))} are reserved ` +
    '(node.diskFreeMinPercent, node.diskFreeMinBytes)';
  if (level === 0) yield ok(`the disk has space: ${text}`);
  else yield warn(`the disk is nearly full: ${DISK_WORDS[level]}; ${text}`, DISK_ADVICE);
}

export const DISK_ADVICE =
  'Free some space, move the data folder to a larger disk, or keep less (retention.*, capacity.*).';

interface LimitedScope {
  readonly where: string;
  readonly slug: string;
  readonly scope: Scope;
  readonly limits: Limits;
}

async function spaceLine(
  client: Client,
  { where, slug, scope, limits }: LimitedScope,
  steps: readonly StepRow[],
): Promise<Finding> {
  const found = steps.find(({ topic }) => topic === scope.topic);
  const isWhole = scope.topic === WHOLE;
  const held = heldText(await readSize(client, scope), limits);
  if (found === undefined) {
    const limit = hasLimit(limits) ? held : 'no limit is set';
    return ok(`${where}: space, step 0 of 3: ${STEP_WORDS[0]}; ${limit}`);
  }
  const { step, since, full } = found;
  const does = isWhole ? STEP_WORDS[step] : full ? FULL_WORDS : TOPIC_STEP_WORDS[step];
  const text = `${where}: space is short, step ${step} of 3: ${does}; ${held}, ${sinceText(since)}`;
  return warn(text, isWhole ? communityAdvice(slug) : topicAdvice(slug));
}

const sinceText = (since: number) => `since ${new Date(since).toISOString().slice(0, 16)}Z`;
const LAG_ADVICE =
  '"minato consumers" shows which one and why. If it is only slow, raise capacity.lagSecondsMax; ' +
  'if it fails, fix the cause or pause it.';
const communityAdvice = (slug: string) =>
  `Raise capacity.maxEvents or capacity.maxBytes ("minato settings set … -c ${slug}"), keep less
(retention.regularDays), or give important topics a priority
("minato topics set TOPIC --priority 1 -c ${slug}").`;
const topicAdvice = (slug: string) =>
  `Raise its limits ("minato topics set TOPIC --max-events N --max-bytes N -c ${slug}"), remove them
("none"), or keep its events for fewer days (--retention-days).`;

function heldText({ events, bytes }: Size, { maxEvents, maxBytes }: Limits): string {
  const held = [
    ...(maxEvents > 0 ? [`${count(events)} of ${count(maxEvents)} events`] : []),
    ...(maxBytes > 0 ? [`${bytesText(bytes)} of ${bytesText(maxBytes)}`] : []),
  ];
  return held.length === 0 ? 'its limit was removed; the step ends within a minute' : held.join(', ');
}
