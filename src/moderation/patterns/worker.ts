/**
 * The thread that matches long texts with patterns: answers each question with true or false, in order. Any
 * exception ends the thread (thread.ts).
 */
import { parentPort } from 'node:worker_threads';
import { LRUCache } from 'lru-cache';
import { RE2JS } from 're2js';
import { matchesPattern } from '../rules-match.js';
import type { PatternQuestion } from '../rules-texts.js';

const PATTERNS_MAX = 500;

if (!parentPort) throw new Error('this file runs as a worker thread only');
const port = parentPort;
const compiled = new LRUCache<string, RE2JS>({ max: PATTERNS_MAX });

port.on('message', (question: PatternQuestion) => {
  const { pattern } = question;
  const known = compiled.get(pattern) ?? RE2JS.compile(pattern);
  compiled.set(pattern, known);
  port.postMessage(matchesPattern(known, question));
});
