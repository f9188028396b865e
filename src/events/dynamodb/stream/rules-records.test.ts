import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../rules/event.js';
import { entryOf, type Image, type StreamRecord } from './rules-records.js';

const event: NostrEvent = {
  id: 'e'.repeat(64),
  pubkey: 'a'.repeat(64),
  created_at: 5,
  kind: 30_023,
  tags: [
    ['d', 'x'],
    ['t', 'sea'],
  ],
  content: '',
  sig: 'c'.repeat(128),
};
const served: Image = {
  community: { N: '7' },
  payload: { S: JSON.stringify(event) },
  bound: { L: [{ S: 'wind' }] },
};
const hidden = (reason: string): Image => ({ ...served, hidden_as: { S: reason } });
const record = (OldImage?: Image, NewImage?: Image, principalId?: string): StreamRecord => ({
  userIdentity: principalId === undefined ? undefined : { principalId },
  dynamodb: { OldImage, NewImage },
});

describe('a record of the stream', () => {
  it('of a new item is an upsert with its topics and its key', () => {
    expect(entryOf(record(undefined, served))).toEqual({
      op: 'upsert',
      reason: undefined,
      community: 7,
      event,
      payload: served.payload!.S,
      topics: ['sea', 'wind'],
      cameBy: undefined,
      effectiveKey: `30023:${event.pubkey}:x`,
    });
  });

  it.each([
    ['superseded', 'superseded'],
    ['deleted', 'nip09'],
    ['expired', 'expiration'],
    ['retention', 'retention'],
    ['capacity', 'capacity'],
    ['vanished', 'vanish'],
    ['removed', 'moderation'],
    ['erased', 'erasure'],
  ])('of an item that is hidden as %s is a delete for %s', (reason, told) => {
    const { payload: _, ...purged } = hidden(reason);
    for (const after of [hidden(reason), purged])
      expect(entryOf(record(served, after))).toMatchObject({ op: 'delete', reason: told, event });
  });

  it('of a served item that is deleted is a deletion by its author, or by TTL an expiration', () => {
    expect(entryOf(record(served))).toMatchObject({ op: 'delete', reason: 'nip09' });
    const byTtl = record(served, undefined, 'dynamodb.amazonaws.com');
    expect(entryOf(byTtl)).toMatchObject({ op: 'delete', reason: 'expiration' });
  });

  it('of a restored item is an upsert', () => {
    expect(entryOf(record(hidden('removed'), served))).toMatchObject({ op: 'upsert' });
  });

  it('of a request to vanish is a mark; its later changes are nothing', () => {
    expect(entryOf(record(undefined, hidden('withheld')))).toEqual({ op: 'mark' });
    expect(entryOf(record(hidden('withheld')))).toBeUndefined();
  });

  it('of an item that was copied is nothing; its later changes are announced', () => {
    const copied: Image = { ...served, copied_at: { N: '1' } };
    expect(entryOf(record(undefined, copied))).toBeUndefined();
    const copiedAgain: Image = { ...hidden('deleted'), copied_at: { N: '2' } };
    expect(entryOf(record(copied, copiedAgain))).toBeUndefined();
    const removed: Image = { ...copied, hidden_as: { S: 'removed' } };
    expect(entryOf(record(copied, removed))).toMatchObject({ op: 'delete', reason: 'moderation' });
    expect(entryOf(record(copied))).toMatchObject({ op: 'delete', reason: 'nip09' });
  });

  it.each([
    ['a held event', undefined, hidden('removed')],
    ['a change that hides nothing', served, served],
    ['a purge of what was hidden', hidden('removed'), hidden('retention')],
    ['a removal of what was hidden', hidden('superseded'), undefined],
  ])('of %s is nothing', (_name, before, after) => {
    expect(entryOf(record(before, after))).toBeUndefined();
  });
});
