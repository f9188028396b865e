/** Authors, words and addresses that are refused on arrival: list, block, unblock. */
import { Anchor, Button, Group, Paper, Tabs, Text, TextInput } from '@mantine/core';
import { IconBan } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { useAction, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { oneOfOr, useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { pubkeyOf, shortKey } from '../../../shared/keys.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { useUndo } from '../cases/actions.js';
import { type Block, CALLS, KINDS, type Kind } from './kinds.js';
import './texts.js';

const filterSchema = { kind: oneOfOr(KINDS, 'authors') };

export default function Blocks() {
  const t = useT();
  const [{ kind }, setFilters] = useFilters(filterSchema);
  const may = useMay('operator');
  return (
    <>
      <PageHead title={t('blocks:title')} about={t('blocks:about')} />
      <Tabs value={kind} onChange={(next) => setFilters({ kind: (next ?? 'authors') as Kind })}>
        <Tabs.List mb="md">
          {KINDS.map((each) => (
            <Tabs.Tab key={each} value={each}>
              {t(`blocks:kinds.${each}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {KINDS.map((each) => (
          <Tabs.Panel key={each} value={each}>
            {each === kind && (
              <>
                <Text size="sm" c="dimmed" mb="md">
                  {t(`blocks:kindsAbout.${each}`)}
                </Text>
                {may && <NewBlock key={each} kind={each} />}
                <BlockList kind={each} />
              </>
            )}
          </Tabs.Panel>
        ))}
      </Tabs>
    </>
  );
}

function NewBlock({ kind }: { readonly kind: Kind }) {
  const t = useT();
  const [value, setValue] = useState('');
  const [reason, setReason] = useState('');
  const blocking = useAction(
    () => CALLS[kind].block(value.trim(), reason.trim() === '' ? undefined : reason.trim()),
    {
      changes: [['blocks']],
      onDone: () => {
        notifyDone(t('blocks:blocked', { value: value.trim() }));
        setValue('');
        setReason('');
      },
    },
  );
  const isWrong = kind === 'authors' && value.trim() !== '' && pubkeyOf(value) === undefined;
  return (
    <Paper withBorder p="md" mb="md">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (value.trim() !== '' && !isWrong) blocking.mutate(undefined);
        }}
      >
        <Group align="flex-start" wrap="wrap">
          <TextInput
            flex="1 1 240px"
            label={t(`blocks:value.${kind}`)}
            placeholder={t(`blocks:example.${kind}`)}
            error={isWrong ? t('blocks:notAKey') : undefined}
            value={value}
            onChange={(event) => setValue(event.currentTarget.value)}
          />
          <TextInput
            flex="1 1 240px"
            label={t('blocks:reason')}
            maxLength={1_000}
            value={reason}
            onChange={(event) => setReason(event.currentTarget.value)}
          />
          <Button
            mt={{ base: 0, sm: 25 }}
            type="submit"
            leftSection={<IconBan size={16} />}
            disabled={value.trim() === '' || isWrong}
            loading={blocking.isPending}
          >
            {t('blocks:block')}
          </Button>
        </Group>
      </form>
    </Paper>
  );
}

function BlockList({ kind }: { readonly kind: Kind }) {
  const t = useT();
  const may = useMay('operator');
  const list = useList(['blocks', kind], CALLS[kind].read, { of: kind });
  const columns: Column<Block>[] = [
    {
      label: t(`blocks:value.${kind}`),
      show: ({ value }) =>
        kind === 'authors' ? (
          <Someone pubkey={value} />
        ) : (
          <Text size="sm" className="mono text">
            {value}
          </Text>
        ),
    },
    {
      label: t('blocks:reason'),
      show: ({ reason }) => <Why reason={reason} />,
    },
    { label: t('blocks:since'), width: 140, isMinor: true, show: ({ created_at: at }) => <When at={at} /> },
  ];
  if (may)
    columns.push({
      label: t('blocks:unblock'),
      width: 130,
      show: (block) => <Unblock kind={kind} block={block} />,
    });
  return (
    <DataTable
      label={t(`blocks:kinds.${kind}`)}
      list={list}
      columns={columns}
      keyOf={({ value }) => value}
      empty={
        <Empty title={t(`blocks:none.${kind}`)} icon={<IconBan size={26} />}>
          {t('blocks:noneAbout')}
        </Empty>
      }
    />
  );
}

/** A ban in a case names the case. */
function Why({ reason }: { readonly reason: string | null }) {
  const t = useT();
  const [, caseId, note = ''] = /^case ([0-9a-f-]{36})(?:: (.*))?$/s.exec(reason ?? '') ?? [];
  return (
    <Text size="sm" className="text">
      {caseId === undefined ? (
        (reason ?? '–')
      ) : (
        <>
          <Anchor component={Link} to={`/cases/${caseId}`} size="sm" underline="always">
            {t('blocks:banInCase')}
          </Anchor>
          {note !== '' && ` · ${note}`}
        </>
      )}
    </Text>
  );
}

function Unblock({ kind, block: { value, reason } }: { readonly kind: Kind; readonly block: Block }) {
  const t = useT();
  const offerUndo = useUndo();
  const shown = kind === 'authors' ? shortKey(value) : value;
  const unblocking = useAction(() => CALLS[kind].unblock(value), {
    changes: [['blocks']],
    onDone: () =>
      offerUndo(t('blocks:unblocked', { value: shown }), async () => {
        await CALLS[kind].block(value, reason ?? undefined);
      }),
  });
  return (
    <Button
      size="compact-sm"
      variant="default"
      aria-label={t('blocks:unblockOne', { value: shown })}
      loading={unblocking.isPending}
      onClick={() => unblocking.mutate(undefined)}
    >
      {t('blocks:unblock')}
    </Button>
  );
}
