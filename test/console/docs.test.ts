/** The API reference in a browser. */
import { afterAll, beforeAll, it } from 'vitest';
import { type ConsoleTest, startConsole } from '../support/console.js';

let test: ConsoleTest;
beforeAll(async () => {
  test = await startConsole();
});
afterAll(() => test?.close());

it('shows the routes under our own name, within its policy', async () => {
  const view = await test.open('/docs');
  await view.page.getByRole('heading', { name: 'Minato API' }).waitFor();
  await view.page.getByText('/v1/topics/resolve').first().waitFor();
  await view.close();
});
