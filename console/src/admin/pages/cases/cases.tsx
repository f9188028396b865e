/** The list of cases, with its filters in the URL, and actions on many of them. */
import { Badge, Button, Group, Stack, Text } from '@mantine/core';
import { IconBan, IconCheck, IconEyeOff } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, dataOf, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { type Column, DataTable, Selection } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import { CASES_MAX, useActing } from './actions.js';
import { Filters, filterSchema, queryOf } from './filters.js';
import { Reason, Reports, StatusBadge, Topics } from './parts.js';
import './texts.js';
import type { CaseAction, ListedCase } from './types.js';
import { useReadAgain } from './waiting.js';

export default function Cases() {
  const t = useT();
  const [filters, setFilters] = useFilters(filterSchema);
  const [selected, select] = useState<ReadonlySet<string>>(new Set());
  const list = useList(['cases', filters], (cursor) =>
    dataOf(
      api.GET('/v1/admin/moderation/cases', {
        params: { query: { ...queryOf(filters, Date.now()), ...(cursor === undefined ? {} : { cursor }) } },
      }),
    ),
  );
  useReadAgain(list.refresh);
  const isFiltered = Object.entries(filters).some(([key, value]) => key !== 'status' && value !== undefined);
  return (
    <>
      <PageHead title={t('cases:title')} about={t('cases:about')} />
      <Filters
        value={filters}
        onChange={(change) => {
          select(new Set());
          setFilters(change);
        }}
      />
      <Many selected={selected} onDone={() => select(new Set())} />
      <DataTable
        label={t('cases:title')}
        list={list}
        columns={useColumns()}
        keyOf={({ case_id: id }) => id}
        selected={selected}
        onSelect={select}
        empty={
          <Empty title={t(isFiltered ? 'cases:noneFound' : 'cases:none')} icon={<IconCheck size={26} />}>
            {t(isFiltered ? 'cases:noneFoundAbout' : 'cases:noneAbout')}
          </Empty>
        }
      />
    </>
  );
}

function useColumns(): readonly Column<ListedCase>[] {
  const t = useT();
  return [
    {
      label: t('cases:what'),
      show: (one) => <About one={one} />,
    },
    {
      label: t('cases:whyOpen'),
      width: 220,
      isMinor: true,
      show: (one) => (
        <Stack gap={2}>
          <Text size="sm">
            <Reason reason={one.reason} />
          </Text>
          {one.reports > 0 && <Reports {...one} />}
        </Stack>
      ),
    },
    {
      label: t('cases:state'),
      width: 120,
      show: (one) => (
        <Stack gap={4} align="flex-start">
          <StatusBadge status={one.status} />
          {one.appealed_at !== null && (one.status === 'open' || one.status === 'held') && (
            <Badge variant="dot" color="grape" tt="none">
              {t('cases:appealed')}
            </Badge>
          )}
        </Stack>
      ),
    },
    {
      label: t('cases:opened'),
      width: 130,
      isMinor: true,
      show: (one) => <When at={one.opened_at} />,
    },
  ];
}

/** The text, as a link to the case, and under it who wrote it. */
function About({ one }: { readonly one: ListedCase }) {
  const t = useT();
  const text =
    one.target_event === null
      ? t('cases:aboutPerson')
      : one.post === null
        ? t('cases:noText')
        : one.post.text.trim() || t('cases:emptyText', { kind: one.post.kind });
  return (
    <Stack gap={4}>
      <Text
        component={Link}
        to={`/cases/${one.case_id}`}
        size="sm"
        fw={550}
        lineClamp={2}
        className="text table-link"
        fs={one.post === null ? 'italic' : undefined}
      >
        {text}
      </Text>
      <Group gap="sm">
        <Someone pubkey={one.target_pubkey} />
        <Topics topics={one.topics} />
      </Group>
    </Stack>
  );
}

interface ManyProps {
  readonly selected: ReadonlySet<string>;
  readonly onDone: () => void;
}

/** The same for all selected cases; a ban is confirmed, everything can be undone. */
function Many({ selected, onDone }: ManyProps) {
  const t = useT();
  const acting = useActing(onDone);
  const [isBanning, setBanning] = useState(false);
  const caseIds = [...selected];
  const isTooMany = caseIds.length > CASES_MAX;
  const run = (action: CaseAction) => acting.mutate({ caseIds, action });
  const shared = { size: 'xs', variant: 'default', disabled: isTooMany || acting.isPending } as const;
  return (
    <Selection count={caseIds.length}>
      <Button {...shared} leftSection={<IconEyeOff size={15} />} onClick={() => run('remove')}>
        {t('cases:act.remove')}
      </Button>
      <Button {...shared} leftSection={<IconCheck size={15} />} onClick={() => run('dismiss')}>
        {t('cases:act.dismiss')}
      </Button>
      <Button {...shared} leftSection={<IconBan size={15} />} onClick={() => setBanning(true)}>
        {t('cases:act.ban')}
      </Button>
      {isTooMany && <Text size="sm">{t('cases:tooMany', { max: number(CASES_MAX) })}</Text>}
      <Confirm
        opened={isBanning}
        title={t('cases:banTitle')}
        action={t('cases:act.ban')}
        onClose={() => setBanning(false)}
        onConfirm={() => {
          setBanning(false);
          run('ban');
        }}
      >
        <Text size="sm">{t('cases:banManyAbout', { n: number(caseIds.length) })}</Text>
      </Confirm>
    </Selection>
  );
}
