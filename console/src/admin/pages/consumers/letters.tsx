/** Changes that a consumer could not apply. */
import { Button, Group, Stack, Text, Title } from '@mantine/core';
import { IconMailCheck, IconRefresh } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Copy } from '../../../shared/components/copy.js';
import { DataTable } from '../../../shared/components/data-table.js';
import { Empty, Failure } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { CONSUMERS_KEY, type Consumer } from './list.js';

interface LettersProps {
  readonly consumer: Consumer;
  readonly isOfNode: boolean;
}

const ID_CHARS = 12;

export function Letters({ consumer, isOfNode }: LettersProps) {
  const t = useT();
  const { name, dead_letters: all } = consumer;
  const [isAsking, setAsking] = useState(false);
  const key = ['dead-letters', name];
  const list = useList(
    [...key, all],
    (cursor) =>
      dataOf(
        api.GET('/v1/admin/consumers/{name}/dead-letters', {
          params: { path: { name }, query: { limit: 100, ...(cursor === undefined ? {} : { cursor }) } },
        }),
      ),
    { of: name, refetchInterval: 10_000 },
  );
  const retry = useAction(
    (seq: number | undefined) =>
      dataOf(
        api.POST('/v1/admin/consumers/{name}/dead-letters/retry', {
          params: { path: { name } },
          body: seq === undefined ? {} : { seq },
        }),
      ),
    {
      changes: [CONSUMERS_KEY, key],
      onDone: ({ asked }) => notifyDone(t('consumers:asked', { asked: number(asked) })),
    },
  );
  type Letter = (typeof list.items)[number];
  const actions = {
    label: t('consumers:retry'),
    width: 130,
    show: (letter: Letter) =>
      letter.retry_asked ? (
        <Text size="sm">{t('consumers:retryAsked')}</Text>
      ) : (
        <Button
          size="compact-sm"
          variant="default"
          aria-label={t('consumers:retryOf', { seq: letter.seq })}
          onClick={() => retry.mutate(letter.seq)}
        >
          {t('consumers:retry')}
        </Button>
      ),
  };
  return (
    <section aria-labelledby="letters">
      <Group justify="space-between" mb="sm" align="flex-end">
        <Stack gap={2}>
          <Title order={2} size="h4" id="letters">
            {t('consumers:lettersTitle')}
          </Title>
          <Text size="sm" c="dimmed">
            {t('consumers:lettersAbout')}
            {!list.isPending && !list.hasNextPage && all > list.items.length
              ? ` ${t('consumers:elsewhere', { letters: number(all) })}`
              : ''}
          </Text>
        </Stack>
        {isOfNode && all > 0 && (
          <Button variant="default" leftSection={<IconRefresh size={16} />} onClick={() => setAsking(true)}>
            {t('consumers:retryAll')}
          </Button>
        )}
      </Group>
      {retry.error !== null && <Failure error={retry.error} />}
      <DataTable
        label={t('consumers:lettersTitle')}
        list={list}
        keyOf={({ seq }) => String(seq)}
        empty={
          <Empty title={t('consumers:lettersNone')} icon={<IconMailCheck size={26} />}>
            {t('consumers:lettersNoneAbout')}
          </Empty>
        }
        columns={[
          { label: t('consumers:seq'), isNumber: true, width: 90, show: ({ seq }) => number(seq) },
          {
            label: t('consumers:change'),
            width: 200,
            show: ({ op, kind, event_id: id }) => (
              <Stack gap={0}>
                <Text size="sm">{`${t(`consumers:op.${op}`)} · ${t('consumers:kind', { kind: String(kind) })}`}</Text>
                <Group gap={4} wrap="nowrap">
                  <Text size="xs" className="mono" c="dimmed">{`${id.slice(0, ID_CHARS)}…`}</Text>
                  <Copy value={id} />
                </Group>
              </Stack>
            ),
          },
          {
            label: t('consumers:failure'),
            show: ({ error }) => (
              <Text size="xs" className="text mono">
                {error}
              </Text>
            ),
          },
          {
            label: t('consumers:tries'),
            isNumber: true,
            isMinor: true,
            width: 90,
            show: ({ attempts }) => number(attempts),
          },
          {
            label: t('consumers:failed'),
            isMinor: true,
            width: 130,
            show: ({ failed_at: at }) => <When at={at} />,
          },
          ...(isOfNode ? [actions] : []),
        ]}
      />
      <Confirm
        opened={isAsking}
        title={t('consumers:retryAllTitle', { name })}
        action={t('consumers:retryAll')}
        isHarmless
        onConfirm={() => {
          setAsking(false);
          retry.mutate(undefined);
        }}
        onClose={() => setAsking(false)}
      >
        <Text size="sm">{t('consumers:retryAllAbout', { letters: number(all) })}</Text>
      </Confirm>
    </section>
  );
}
