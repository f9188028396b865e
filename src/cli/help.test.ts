import { readdirSync, readFileSync } from 'node:fs';
import { Command } from 'commander';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { defaultsOfVariables } from '../node/config.js';
import { sentenceOf, wholeNumber } from './answers.js';
import { serveCommand } from './serve.js';

/** Every command with its full name. */
async function allCommands(): Promise<[string, Command][]> {
  const found: [string, Command][] = [];
  const add = (command: Command, before: string): void => {
    const name = `${before}${command.name()}`;
    found.push([name, command]);
    for (const child of command.commands) add(child, `${name} `);
  };
  const files = readdirSync(new URL('..', import.meta.url), { recursive: true, encoding: 'utf8' });
  const isCommand = /^cli\/(?!main)[a-z-]+\.ts$|\/command(-[a-z-]+)?\.ts$/;
  for (const file of files.filter((path) => isCommand.test(path))) {
    const exported = Object.entries(
      (await import(/* @vite-ignore */ `../${file}`)) as Record<string, unknown>,
    );
    for (const [name, make] of exported) {
      const made: unknown = name.endsWith('Command') && typeof make === 'function' ? make() : undefined;
      if (made instanceof Command) add(made, '');
    }
  }
  return found;
}

/** The help text that commander prints. */
function helpOf(command: Command): string {
  let text = '';
  command.configureOutput({ writeOut: (part) => (text += part) });
  command.outputHelp();
  return text;
}

it('the help of every command shows readable defaults and describes each option', async () => {
  const commands = await allCommands();
  expect(commands.length).toBeGreaterThan(60);
  for (const [name, command] of commands) {
    const shown = [
      ...helpOf(command)
        .replace(/\n +/g, ' ')
        .matchAll(/\(default: ([^)]*)\)/g),
    ];
    for (const [, value] of shown) expect(value, name).toMatch(/^("[^"]*"|\d+|true|false|[a-z][a-z ]*)$/);
    expect(command.description(), name).not.toBe('');
    for (const option of command.options) expect(option.description, `${name} ${option.flags}`).not.toBe('');
  }
});

it('the help of serve has every environment variable with its default', () => {
  const help = helpOf(serveCommand());
  for (const [name, value] of Object.entries(defaultsOfVariables())) {
    const line = help.split('\n').find((one) => one.trim().startsWith(`${name} `));
    expect(line, name).toBeDefined();
    const text = Array.isArray(value) ? value.join(',') : String(value ?? '');
    if (text === '') expect(line).toMatch(/\([^()]+\)$/);
    else expect(line!.endsWith(`(${text})`), line).toBe(true);
  }
});

it('a value that a schema refuses gives a sentence', () => {
  const schema = z.strictObject({ days: z.number().int().min(0).max(36_500), name: z.string().optional() });
  const sentence = (value: unknown) => sentenceOf(schema.safeParse(value).error);
  expect(sentence({ days: 40_000 })).toBe('days must be at most 36500');
  expect(sentence({ days: -1 })).toBe('days must be at least 0');
  expect(sentence({ days: 1, name: 2 })).toBe('name: invalid input: expected string, received number');
  expect(sentence(3)).toMatch(/^the value: invalid input/);
  expect(sentenceOf(new Error('no room'))).toBe('no room');
});

it('a whole number is accepted only within its range', () => {
  const parse = wholeNumber(-5, 40);
  expect(['-5', '0', '40'].map(parse)).toEqual([-5, 0, 40]);
  for (const text of ['-6', '41', '1.5', '', 'x', '1e1', '99999999999999999999'])
    expect(() => parse(text), text).toThrow('must be a whole number from -5 to 40.');
});

it('docs/commands.md names every command', () => {
  const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8');
  const page = read('../../docs/commands.md');
  const commands = [...read('./main.ts').matchAll(/^ {2}'?([a-z-]+)'?: async \(\)/gm)].map(
    ([, name]) => name!,
  );
  expect(commands.length).toBeGreaterThan(20);
  expect(commands.filter((name) => !page.includes(`\`minato ${name}`))).toEqual([]);
});
