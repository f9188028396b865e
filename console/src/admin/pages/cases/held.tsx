/** Posts that a rule or a batch hides until a moderator decides: release or remove them, one or many. */
import { Box, Button, Group, Stack, Text } from '@mantine/core';
import { IconCheck, IconEyeOff, IconSend } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, dataOf, useList } from '../../../shared/api.js';
import { type Column, DataTable, Selection } from '../../../shared/components/data-table.js';
import { EventText } from '../../../shared/components/event-text.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { text, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import { CASES_MAX, useActing } from './actions.js';
import { Typed } from './filters.js';
import { Topics } from './parts.js';
import { useRuleName } from './rules-by-id.js';
import './texts.js';
import type { ListedCase } from './types.js';
import { useReadAgain } from './waiting.js';

const SHOWN_LENGTH = 280;
const filterSchema = { topic: text };

export default function Held() {
  const t = useT();
  const [{ topic }, setFilters] = useFilters(filterSchema);
  const [selected, select] = useState<ReadonlySet<string>>(new Set());
  const acting = useActing(() => select(new Set()));
  const list = useList(['cases', 'held', topic], (cursor) =>
    dataOf(
      api.GET('/v1/admin/moderation/cases', {
        params: {
          query: {
            status: 'held',
            ...(topic === undefined ? {} : { topic }),
            ...(cursor === undefined ? {} : { cursor }),
          },
        },
      }),
    ),
  );
  useReadAgain(list.refresh);
  const isTooMany = selected.size > CASES_MAX;
  const run = (action: 'restore' | 'remove', caseIds: readonly string[]) =>
    acting.mutate({ caseIds, action });
  const busy = acting.isPending;
  const columns = useColumns(run, busy);
  return (
    <>
      <PageHead title={t('cases:heldTitle')} about={t('cases:heldAbout')} />
      <Group mb="md">
        <Typed
          label={t('cases:topic')}
          value={topic ?? ''}
          onDone={(text) => setFilters({ topic: text === '' ? undefined : text })}
        />
      </Group>
      <Selection count={selected.size}>
        <Button
          size="xs"
          disabled={isTooMany || busy}
          leftSection={<IconSend size={15} />}
          onClick={() => run('restore', [...selected])}
        >
          {t('cases:act.release')}
        </Button>
        <Button
          size="xs"
          variant="default"
          disabled={isTooMany || busy}
          leftSection={<IconEyeOff size={15} />}
          onClick={() => run('remove', [...selected])}
        >
          {t('cases:act.remove')}
        </Button>
        {isTooMany && <Text size="sm">{t('cases:tooMany', { max: number(CASES_MAX) })}</Text>}
      </Selection>
      <DataTable
        label={t('cases:heldTitle')}
        list={list}
        columns={columns}
        keyOf={({ case_id: id }) => id}
        selected={selected}
        onSelect={select}
        empty={
          <Empty title={t('cases:heldNone')} icon={<IconCheck size={26} />}>
            {t('cases:heldNoneAbout')}
          </Empty>
        }
      />
    </>
  );
}

type Run = (action: 'restore' | 'remove', caseIds: readonly string[]) => void;

function useColumns(run: Run, busy: boolean): readonly Column<ListedCase>[] {
  const t = useT();
  const nameOf = useRuleName();
  return [
    {
      label: t('cases:post'),
      show: (one) => (
        <Stack gap={4}>
          {one.post === null ? (
            <Text size="sm" fs="italic">
              {t('cases:noText')}
            </Text>
          ) : (
            <EventText text={one.post.text} short={SHOWN_LENGTH} />
          )}
          <Group gap="sm">
            <Someone pubkey={one.target_pubkey} />
            <Topics topics={one.topics} />
          </Group>
          <Box hiddenFrom="sm">
            <Decide one={one} run={run} busy={busy} />
          </Box>
        </Stack>
      ),
    },
    {
      label: t('cases:heldBecause'),
      width: 200,
      isMinor: true,
      show: (one) => (
        <Stack gap={2}>
          <Text size="sm" className="text">
            {(one.rule_id === null ? undefined : nameOf(one.rule_id)) ?? one.reason}
          </Text>
          <Text size="xs" c="dimmed" component="div">
            <When at={one.opened_at} />
          </Text>
        </Stack>
      ),
    },
    {
      label: t('cases:decide'),
      width: 250,
      isMinor: true,
      show: (one) => <Decide one={one} run={run} busy={busy} />,
    },
  ];
}

interface DecideProps {
  readonly one: ListedCase;
  readonly run: Run;
  readonly busy: boolean;
}

function Decide({ one, run, busy }: DecideProps) {
  const t = useT();
  return (
    <Group gap="xs">
      <Button size="compact-sm" disabled={busy} onClick={() => run('restore', [one.case_id])}>
        {t('cases:act.release')}
      </Button>
      <Button
        size="compact-sm"
        variant="default"
        disabled={busy}
        onClick={() => run('remove', [one.case_id])}
      >
        {t('cases:act.remove')}
      </Button>
      <Button size="compact-sm" variant="subtle" component={Link} to={`/cases/${one.case_id}`}>
        {t('cases:toCase')}
      </Button>
    </Group>
  );
}
