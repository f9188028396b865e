/**
 * Acting on cases. Every action is a batch, of one case or of many: so each can be undone as a whole, and a
 * case gets the status back that it had.
 */
import { Button, Group, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQueryClient } from '@tanstack/react-query';
import { api, dataOf, readAgain, useAction } from '../../../shared/api.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { messageOf } from '../../../shared/messages.js';
import { notifyDone } from '../../../shared/providers.js';
import type { CaseAction, LabelName } from './types.js';
import './texts.js';

/** What is read again after an action. */
export const TOUCHED = [['cases'], ['case'], ['waiting'], ['labels'], ['batches'], ['blocks']] as const;

const UNDO_SHOWN_MS = 12_000;
const POLL_MS = 400;
const POLLS_MAX = 75;
export const CASES_MAX = 100;

export interface LabelSpec {
  readonly label: LabelName;
  readonly confidence: number;
  readonly days: number;
  readonly policy: string;
}

export interface Acting {
  readonly caseIds: readonly string[];
  readonly action: CaseAction;
  readonly note?: string;
  readonly label?: LabelSpec;
}

interface Acted {
  readonly batchId: string | null;
  readonly done: number;
  readonly refused: readonly string[];
}

async function act({ caseIds, action, note = '', label }: Acting): Promise<Acted> {
  const body = { case_ids: [...caseIds], action, note, ...(label === undefined ? {} : { label }) };
  const answer = await dataOf(api.POST('/v1/admin/moderation/cases/actions', { body }));
  const refused = answer.items.flatMap(({ refused: code }) => code ?? []);
  return { batchId: answer.batch_id, done: answer.items.length - refused.length, refused };
}

/** Undoes a batch and waits until that is done. */
export async function undoBatch(batchId: string): Promise<void> {
  const path = { batch_id: batchId };
  await api.POST('/v1/admin/moderation/batches/{batch_id}/undo', { params: { path } });
  for (let polls = 0; polls < POLLS_MAX; polls += 1) {
    const { status } = await dataOf(api.GET('/v1/admin/moderation/batches/{batch_id}', { params: { path } }));
    if (status === 'undone') return;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Shows what was done, with a button that undoes it. */
export function useUndo(): (message: string, undo: () => Promise<void>) => void {
  const t = useT();
  const client = useQueryClient();
  return (message, undo) => {
    const id = crypto.randomUUID();
    const run = async () => {
      notifications.update({ id, message: t('cases:undoing'), loading: true, autoClose: false });
      try {
        await undo();
        notifications.hide(id);
        notifyDone(t('cases:undone'));
      } catch (error) {
        const { title, text } = messageOf(error);
        notifications.update({ id, color: 'red', title, message: text, loading: false });
      }
      await Promise.all(TOUCHED.map((queryKey) => readAgain(client, queryKey)));
    };
    notifications.show({
      id,
      color: 'teal',
      autoClose: UNDO_SHOWN_MS,
      message: (
        <Group justify="space-between" wrap="nowrap">
          <Text size="sm">{message}</Text>
          <Button size="compact-sm" variant="default" onClick={() => void run()}>
            {t('cases:undo')}
          </Button>
        </Group>
      ),
    });
  };
}

/** Acts on one case or many, says what became of it, and offers to undo it. */
export function useActing(onDone?: () => void) {
  const t = useT();
  const offerUndo = useUndo();
  return useAction(act, {
    changes: TOUCHED,
    onDone: ({ batchId, done, refused }, { action }) => {
      if (batchId !== null && done > 0) {
        const message = t(`cases:done.${action}`, { n: number(done) });
        offerUndo(message, () => undoBatch(batchId));
      }
      if (refused.length > 0) {
        const codes = [...new Set(refused)].join(', ');
        const message = t('cases:refused', { n: number(refused.length), codes });
        notifications.show({ color: 'orange', title: t('cases:refusedTitle'), message });
      }
      onDone?.();
    },
  });
}
