/** Getting into the console: the first set-up, each way to sign in, and what nobody gets without it. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { newAuthor } from '../support/events.js';

let test: ConsoleTest;
beforeAll(async () => {
  test = await startConsole();
});
afterAll(() => test?.close());

describe('the sign-in', () => {
  it('by an extension starts a session, which a reload keeps and signing out ends', async () => {
    const view = await test.open('/admin/', { extension: test.boss });
    await view.expectAccessible();
    await view.page.getByRole('button', { name: 'Sign in' }).click();
    await view.page.getByRole('navigation', { name: 'Pages' }).waitFor();
    await view.page.reload();
    await view.page.getByRole('button', { name: 'Operator' }).click();
    await view.page.getByRole('menuitem', { name: 'Sign out' }).click();
    await view.page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await view.close();
  });

  it('refuses a key without a role, and says so', async () => {
    const view = await test.open('/admin/', { extension: newAuthor() });
    await view.page.getByRole('button', { name: 'Sign in' }).click();
    await view.page.getByRole('alert').getByText('OPERATORS_ONLY').waitFor();
    await view.close();
  });
});
