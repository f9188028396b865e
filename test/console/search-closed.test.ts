/** Search where clients must sign in: the page explains itself, and searches with the key of an extension. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { newAuthor, sign } from '../support/events.js';

let test: ConsoleTest;
const note = sign(newAuthor(), { content: 'harbour lantern at dusk' });

beforeAll(async () => {
  test = await startConsole({ env: { MINATO_TOPIC_MODE: 'open' } });
  const { node } = test;
  const client = await RawClient.connect(node.url);
  expect(await client.publish(note)).toEqual([true, '']);
  await client.close();
  await eventually('it is indexed', async () => {
    const { body } = await test.api.ask<{ items?: unknown[] }>('GET', '/v1/search?q=lantern');
    return body.items?.length === 1 ? true : undefined;
  });
  await writeSetting(node.database.pool, 1, 'auth.mode', 'required', Date.now());
  await node.node.communities.refresh();
});
afterAll(() => test?.close());

it('without an extension it leads to the events', async () => {
  const view = await test.open('/admin/search?q=lantern', { as: test.boss });
  await view.page.getByRole('heading', { name: 'Only members search here' }).waitFor();
  await view.expectAccessible();
  await view.page.getByRole('link', { name: 'Find in events' }).click();
  await view.page.getByRole('link', { name: note.content }).waitFor();
  await view.close();
});

it('with an extension it searches with that key', async () => {
  const view = await test.open('/admin/search?q=lantern+dusk', { as: test.boss, extension: test.boss });
  await view.page.getByRole('button', { name: 'Search with my extension' }).click();
  await view.page.getByRole('list', { name: 'Results' }).getByText(note.content).waitFor();
  await view.close();
});
