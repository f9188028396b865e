/**
 * Publishes the list of members (NIP-43) in communities that turned it on, and keeps it up to date. Deletes
 * the list in communities that turned it off.
 */
import type { EventTemplate } from 'nostr-tools/pure';
import type { Client } from 'pg';
import type { Community } from '../communities/communities.js';
import { KIND_DELETION } from '../events/rules/classify.js';
import { type NostrEvent, serializeEvent } from '../events/rules/event.js';
import type { Job, JobContext, JobResult } from '../jobs/job.js';
import { listMemberKeys } from './members.sql.js';
import { KIND_MEMBERS, membersIn, membersTemplate } from './rules-joining.js';

/** Each takes 77 bytes, so the event stays small enough for other relays. */
const MEMBERS_MAX = 5_000;

export const membershipList: Job = {
  name: 'membership-list',
  cron: '* * * * *',
  about: 'publishes who is a member (NIP-43), if membership.list is on',
  purges: false,
  run: async (context, client): Promise<JobResult> => {
    let changed = 0;
    for (const community of context.communities.all()) {
      if (context.signal.aborted) return { changed, more: true };
      if (await bringUpToDate(context, client, community)) changed += 1;
    }
    return { changed, more: false };
  },
  dryRun: async () => [],
};

async function bringUpToDate(context: JobContext, client: Client, community: Community): Promise<boolean> {
  const { id, self, settings } = community;
  if (self === undefined) return false;
  const published = await publishedList(context, id, self);
  if (!settings['membership.list']) return published !== undefined && takeBack(context, community, published);
  const members = await listMemberKeys(client, id, MEMBERS_MAX);
  if (published !== undefined && membersIn(published).join() === members.join()) return false;
  const createdAt = Math.max(Math.floor(context.now() / 1_000), (published?.created_at ?? 0) + 1);
  return publish(context, community, membersTemplate(members, createdAt));
}

async function publishedList(
  { store, now }: JobContext,
  community: number,
  self: string,
): Promise<NostrEvent | undefined> {
  const filter = { authors: new Set([self]), kinds: new Set([KIND_MEMBERS]), tags: [] };
  const [found] = await store.find({ community, filter, limit: 1, now: now() }, 'light');
  return found?.payload === undefined ? undefined : (JSON.parse(found.payload) as NostrEvent);
}

function takeBack(
  context: JobContext,
  community: Community,
  { id, created_at }: NostrEvent,
): Promise<boolean> {
  const tags = [
    ['e', id],
    ['k', `${KIND_MEMBERS}`],
  ];
  const at = Math.max(Math.floor(context.now() / 1_000), created_at);
  return publish(context, community, { kind: KIND_DELETION, created_at: at, tags, content: '' });
}

async function publish(
  { store, erasing: { keys } }: JobContext,
  { id }: Community,
  template: EventTemplate,
): Promise<boolean> {
  const event = await keys.sign(id, 'relay', template);
  return (await store.submit({ community: id, event, payload: serializeEvent(event) })) === 'stored';
}
