/** What operators of the node do to a consumer. Each asks first and says what will happen. */
import { NumberInput, Stack, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { CONSUMERS_KEY, type Consumer } from './list.js';

export type Step = 'pause' | 'replay' | 'rebuild';
type Input =
  | { readonly step: 'pause' | 'resume' }
  | { readonly step: 'replay'; readonly from: number }
  | { readonly step: 'rebuild'; readonly reason: string };

export function useSteps(name: string) {
  const t = useT();
  const params = { path: { name } };
  const act = (input: Input): Promise<unknown> => {
    if (input.step === 'replay')
      return dataOf(api.POST('/v1/admin/consumers/{name}/replay', { params, body: { from: input.from } }));
    if (input.step === 'rebuild') {
      const body = input.reason === '' ? {} : { reason: input.reason };
      return dataOf(api.POST('/v1/admin/consumers/{name}/rebuild', { params, body }));
    }
    return input.step === 'pause'
      ? dataOf(api.POST('/v1/admin/consumers/{name}/pause', { params, body: {} }))
      : dataOf(api.POST('/v1/admin/consumers/{name}/resume', { params, body: {} }));
  };
  return useAction(act, {
    changes: [CONSUMERS_KEY],
    onDone: (_done, { step }) => notifyDone(t(`consumers:done.${step}`, { name })),
  });
}

interface StepDialogsProps {
  readonly consumer: Consumer;
  readonly asked: Step | undefined;
  readonly steps: ReturnType<typeof useSteps>;
  readonly onClose: () => void;
}

export function StepDialogs({ consumer, asked, steps, onClose }: StepDialogsProps) {
  const t = useT();
  const { name, last_seq: last, head_seq: head } = consumer;
  const [from, setFrom] = useState<number>();
  const [reason, setReason] = useState('');
  const first = from ?? Math.max(1, last - 99);
  const confirm = (input: Input) => {
    steps.mutate(input);
    setFrom(undefined);
    setReason('');
    onClose();
  };
  const isPossible = Number.isSafeInteger(first) && first >= 1 && first <= last;
  return (
    <>
      <Confirm
        opened={asked === 'pause'}
        title={t('consumers:pauseTitle', { name })}
        action={t('consumers:pause')}
        onConfirm={() => confirm({ step: 'pause' })}
        onClose={onClose}
      >
        <Text size="sm">{t('consumers:pauseAbout')}</Text>
      </Confirm>
      <Confirm
        opened={asked === 'replay'}
        title={t('consumers:replayTitle', { name })}
        action={t('consumers:replayAction')}
        isHarmless
        isDisabled={!isPossible}
        onConfirm={() => confirm({ step: 'replay', from: first })}
        onClose={onClose}
      >
        <Stack gap="sm">
          <NumberInput
            label={t('consumers:replayFrom')}
            description={t('consumers:replayFromAbout', { max: number(last) })}
            value={first}
            min={1}
            max={Math.max(1, last)}
            allowDecimal={false}
            onChange={(value) => setFrom(Number(value))}
          />
          <Text size="sm">
            {t('consumers:replayAbout', { rows: number(isPossible ? last - first + 1 : 0) })}
          </Text>
        </Stack>
      </Confirm>
      <Confirm
        opened={asked === 'rebuild'}
        title={t('consumers:rebuildTitle', { name })}
        name={name}
        action={t('consumers:rebuildAction')}
        onConfirm={() => confirm({ step: 'rebuild', reason: reason.trim() })}
        onClose={onClose}
      >
        <Text size="sm">{t('consumers:rebuildAbout', { head: number(head) })}</Text>
        <TextInput
          label={t('consumers:rebuildReason')}
          value={reason}
          maxLength={200}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
      </Confirm>
    </>
  );
}
