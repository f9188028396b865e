/** Long matches run in a thread; a thread that ends or hangs fails its question and no other. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { eventOf, ruleOf, openSettings as settings } from '../../../test/support/domains/rules.js';
import { isNoAnswer } from '../../limits/in-time.js';
import { answerOf, compileRule, matchRules, PATTERN_WORK_MAX } from '../rules-match.js';
import type { PatternQuestion } from '../rules-texts.js';
import { inSteps, PatternThread, SENDER_QUESTIONS_MAX } from './thread.js';

const folder = mkdtempSync(join(tmpdir(), 'minato-patterns-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** 200 steps or so: no prefix that could be searched for. */
const PATTERN = '(?i)[a-f]{40}(x|y[a-z]{60})z';
const compiled = compileRule(ruleOf({ patterns: [PATTERN] }));
const judge = (content: string) => matchRules(eventOf({ content }), settings, [compiled]);

function questionsOf(content: string): PatternQuestion[] {
  const asked: PatternQuestion[] = [];
  const work = judge(content);
  for (let step = work.next(); !step.done; step = work.next(false)) if (step.value) asked.push(step.value);
  return asked;
}

describe('a match', () => {
  const length = Math.ceil(PATTERN_WORK_MAX / compiled.steps);
  const matching = `${'abcdef'.repeat(7)}xz`;

  it('of a short text is a step of the event loop, one of a long text is not', () => {
    expect(questionsOf('-'.repeat(length / 4))).toEqual([]);
    expect(questionsOf('-'.repeat(length * 2))).toMatchObject([{ pattern: PATTERN }]);
  });

  it.each([
    ['matches', `${'-'.repeat(length * 2)}${matching}`, 1],
    ['does not match', '-'.repeat(length * 2), 0],
  ])('in the thread has the result of one on the event loop: it %s', async (_, content, met) => {
    expect(await inSteps(judge(content))).toHaveLength(met);
    expect(answerOf(judge(content))).toHaveLength(met);
  });
});

describe('a thread', () => {
  const threadOf = (name: string, onMessage: string, replyMsMax?: number) => {
    const file = join(folder, `${name}.mjs`);
    writeFileSync(
      file,
      `import { parentPort } from 'node:worker_threads';
       parentPort.on('message', ({ pattern }) => { ${onMessage} });`,
    );
    return new PatternThread(pathToFileURL(file), replyMsMax);
  };
  const ask = (thread: PatternThread, pattern: string) => thread.ask({ pattern, texts: [] });
  const answer = `parentPort.postMessage(pattern === 'yes')`;

  it('answers each question with its own reply', async () => {
    const thread = threadOf('answers', answer);
    const asked = ['yes', 'no', 'no', 'yes'].map((pattern) => ask(thread, pattern));
    expect(await Promise.all(asked)).toEqual([true, false, false, true]);
  });

  it('serves lines round robin, and a sender with too many questions gets an error', async () => {
    const thread = threadOf('lines', answer);
    const order: string[] = [];
    const from = async (line: readonly string[]) => {
      await thread.ask({ pattern: 'yes', texts: [] }, line);
      order.push(line[0]!);
    };
    const flood = Array.from({ length: SENDER_QUESTIONS_MAX + 2 }, () => from(['1', '198.51.100.7']));
    const refused = flood.pop()!;
    await expect(refused).rejects.toThrow('too many');
    const others = [from(['2', '192.0.2.1']), from(['1', '192.0.2.1'])];
    await Promise.all(others);
    expect(order.length).toBeLessThan(10);
    await Promise.all(flood);
  });

  it('that ends fails its question, and another answers the next', async () => {
    const thread = threadOf('ends', `if (pattern === 'end') throw new Error('ended'); ${answer}`);
    const [ended, next] = [ask(thread, 'end'), ask(thread, 'yes')];
    await expect(ended).rejects.toThrow('ended');
    expect(await next).toBe(true);
  });

  it('that hangs is ended at its deadline, and another answers the next', async () => {
    const thread = threadOf('hangs', `if (pattern === 'hang') for (;;); ${answer}`, 2_000);
    const [hung, next] = [ask(thread, 'hang'), ask(thread, 'yes')];
    expect(isNoAnswer(await hung.catch((error: unknown) => error))).toBe(true);
    expect(await next).toBe(true);
  });
});
