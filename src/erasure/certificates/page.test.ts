import { expect, it } from 'vitest';
import type { NostrEvent } from '../../events/rules/event.js';
import { certificatePage } from './page.js';
import { KIND_CERTIFICATE } from './rules.js';

const HASH = 'ab'.repeat(32);
const content = {
  type: 'minato-erasure-certificate',
  version: 1,
  erasure_id: '0190c5a4-0000-4000-8000-000000000000',
  software: { name: 'minato', version: '"><script>' },
  community: '<b>art</b>',
  subject: { type: 'member', hash: HASH, key: HASH },
  cause: 'vanish',
  requested_at: 1_000,
  fenced_at: 2_000,
  counted_at: 3_000,
  completed_at: 4_000,
  until: null,
  banned: false,
  stores: [
    { name: 'postgres:<i>', before: null, deleted: 1_234, after: 0 },
    { name: 'redis:&', before: 0, deleted: 0, after: 0 },
  ],
  kept: [{ name: 'postgres:audit_log', rows: 2, until: 5_000, why: "'why'" }],
  previous: HASH,
};
const eventOf = (text: string): NostrEvent => ({
  id: HASH,
  pubkey: HASH,
  created_at: 4,
  kind: KIND_CERTIFICATE,
  tags: [],
  content: text,
  sig: HASH + HASH,
});

it('what a certificate says stands on the page as text, never as markup', () => {
  const page = certificatePage(eventOf(JSON.stringify(content)))!;
  for (const markup of ['<b>', '<i>', '<script', "'why'", 'redis:&<', 'redis:& '])
    expect(page).not.toContain(markup);
  for (const text of ['&#60;b&#62;art', 'postgres:&#60;i&#62;', '1,234', 'redis:&#38;', '&#39;why&#39;'])
    expect(page).toContain(text);
});

it('names services that have not confirmed the deletion, and counts rows that others deleted', () => {
  const stores = [{ name: 'postgres:reports', before: 7, added: 0, deleted: 2, otherwise: 5, after: 0 }];
  const follower = { name: 'index-of-art', acknowledged: 5_678, needed: 9_012, limit_seconds: 86_400 };
  const second = { ...content, version: 2, stores, unacknowledged: [follower] };
  const page = certificatePage(eventOf(JSON.stringify(second)))!;
  expect(page).toMatch(/index-of-art[\s\S]*5,678 of 9,012/);
  expect(page).toMatch(
    /<td>postgres:reports<\/td><td class="n">7<\/td><td class="n">2<\/td><td class="n">5<\/td>/,
  );
});

it('what is no certificate has no page', () => {
  expect(certificatePage(eventOf('{}'))).toBeUndefined();
});
