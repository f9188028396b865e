/** What `minato doctor` says of space: the step of each community, always, and of each topic with limits of its own. */
import type { Client } from 'pg';
import {
  communityLimits,
  FULL_WORDS,
  hasLimit,
  type Limits,
  type Size,
  STEP_WORDS,
  TOPIC_STEP_WORDS,
  topicLimits,
} from '../core/capacity.js';
import { settingsFrom } from '../core/settings.js';
import { readSize, readSteps, type Scope, type StepRow, WHOLE } from '../store/capacity.js';
import { readCommunities } from '../store/communities.js';
import { readTopics } from '../store/topics.js';
import { type Finding, ok, warn } from './finding.js';
import { bytesText, count } from './progress.js';

/** Topics with limits that are fine and are shown one by one; of the others only how many. */
const FINE_TOPICS_MAX = 20;

/** A line for each community always, and for each topic that has limits of its own or is in a step. */
export async function* checkCapacity(client: Client): AsyncGenerator<Finding> {
  const steps = await readSteps(client);
  const topics = await readTopics(client);
  for (const { id, slug, settings } of await readCommunities(client)) {
    const own = steps.filter(({ community }) => community === id);
    const lag = own.find(({ cause }) => cause === 'lag');
    if (lag !== undefined)
      yield warn(
        `community ${slug}: a reader of the outbox is far behind, step ${lag.step} of 2: ${STEP_WORDS[lag.step]}, ${sinceText(lag.since)}`,
        LAG_ADVICE,
      );
    const space = own.filter(({ cause }) => cause === 'space');
    const limits = communityLimits(settingsFrom(settings));
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
  'See "minato consumers" for which one and why. Where it is only slow, raise capacity.lagSecondsMax; where it fails, mend that, or pause it.';
const communityAdvice = (slug: string) =>
  `Raise capacity.maxEvents or capacity.maxBytes ("minato settings set … -c ${slug}"), keep less (retention.regularDays), or give
the topics that matter a priority ("minato topics set TOPIC --priority 1 -c ${slug}").`;
const topicAdvice = (slug: string) =>
  `Raise its limits ("minato topics set TOPIC --max-events N --max-bytes N -c ${slug}"), take them away ("none"), or keep it shorter
(--retention-days).`;

function heldText({ events, bytes }: Size, { maxEvents, maxBytes }: Limits): string {
  const held = [
    ...(maxEvents > 0 ? [`${count(events)} of ${count(maxEvents)} events`] : []),
    ...(maxBytes > 0 ? [`${bytesText(bytes)} of ${bytesText(maxBytes)}`] : []),
  ];
  return held.length === 0 ? 'its limit was taken away and the step ends within a minute' : held.join(', ');
}
