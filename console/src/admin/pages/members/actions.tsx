/** What an operator can do about one member. Each change says first what it does, in numbers. */
import {
  Button,
  Group,
  Menu,
  Modal,
  NumberInput,
  ScrollArea,
  Select,
  Stack,
  Text,
  Textarea,
  TextInput,
} from '@mantine/core';
import {
  IconChevronDown,
  IconCreditCard,
  IconDownload,
  IconEraser,
  IconPencil,
  IconPlayerPlay,
  IconUserOff,
} from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { npubOf } from '../../../shared/keys.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import type { Member } from './member.js';
import { Amount } from './tabs.js';

interface ActionsProps {
  readonly pubkey: string;
  readonly member: Member | null;
  /** How the page calls the member. */
  readonly title: string;
}

type Open = 'edit' | 'status' | 'plan' | 'export' | 'erase';

export function Actions(props: ActionsProps) {
  const t = useT();
  const mayAct = useMay('operator');
  const [open, setOpen] = useState<Open>();
  if (!mayAct) return null;
  const status = props.member?.status ?? 'active';
  const close = () => setOpen(undefined);
  return (
    <>
      <Button variant="default" leftSection={<IconPencil size={16} />} onClick={() => setOpen('edit')}>
        {t('members:edit')}
      </Button>
      <Menu position="bottom-end">
        <Menu.Target>
          <Button rightSection={<IconChevronDown size={16} />}>{t('members:actions')}</Button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item leftSection={<IconCreditCard size={16} />} onClick={() => setOpen('plan')}>
            {t('members:changePlan')}
          </Menu.Item>
          <Menu.Item leftSection={<IconDownload size={16} />} onClick={() => setOpen('export')}>
            {t('members:export')}
          </Menu.Item>
          {status !== 'deleted' && (
            <Menu.Item
              leftSection={status === 'active' ? <IconUserOff size={16} /> : <IconPlayerPlay size={16} />}
              onClick={() => setOpen('status')}
            >
              {t(status === 'active' ? 'members:disable' : 'members:enable')}
            </Menu.Item>
          )}
          <Menu.Divider />
          <Menu.Item color="red.8" leftSection={<IconEraser size={16} />} onClick={() => setOpen('erase')}>
            {t('members:erase')}
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {open === 'edit' && <Edit {...props} onClose={close} />}
      {open === 'plan' && <ChoosePlan {...props} onClose={close} />}
      {open === 'status' && <ChangeStatus {...props} onClose={close} />}
      {open === 'export' && <Export {...props} onClose={close} />}
      {open === 'erase' && <Erase {...props} onClose={close} />}
    </>
  );
}

type DialogProps = ActionsProps & { readonly onClose: () => void };

const MEMBERS = ['members'];

interface Change {
  readonly status?: 'active' | 'disabled';
  readonly note?: string | null;
  readonly name?: string | null;
}

function useChange({ pubkey, onClose }: DialogProps) {
  const t = useT();
  return useAction(
    (body: Change) => dataOf(api.PATCH('/v1/admin/members/{pubkey}', { params: { path: { pubkey } }, body })),
    {
      changes: [MEMBERS],
      onDone: () => {
        notifyDone(t('members:saved'));
        onClose();
      },
    },
  );
}

function Edit(props: DialogProps) {
  const t = useT();
  const { member, onClose } = props;
  const [note, setNote] = useState(member?.note ?? '');
  const [name, setName] = useState(member?.name ?? '');
  const change = useChange(props);
  return (
    <Modal
      opened
      onClose={onClose}
      title={t('members:edit')}
      centered
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate({ note: note.trim() || null, name: name.trim() || null });
        }}
      >
        <Stack>
          <TextInput
            label={t('members:givenName')}
            description={t('members:givenNameAbout')}
            value={name}
            maxLength={64}
            onChange={(event) => setName(event.currentTarget.value.toLowerCase())}
          />
          <Textarea
            label={t('members:note')}
            description={t('members:noteAbout')}
            autosize
            minRows={3}
            maxLength={1_000}
            value={note}
            onChange={(event) => setNote(event.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={change.isPending}>
              {t('members:save')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function ChangeStatus(props: DialogProps) {
  const t = useT();
  const { member, title, onClose } = props;
  const change = useChange(props);
  const isActive = (member?.status ?? 'active') === 'active';
  return (
    <Confirm
      opened
      title={t(isActive ? 'members:disableTitle' : 'members:enableTitle', { name: title })}
      action={t(isActive ? 'members:disable' : 'members:enable')}
      isHarmless={!isActive}
      isBusy={change.isPending}
      onClose={onClose}
      onConfirm={() => change.mutate({ status: isActive ? 'disabled' : 'active' })}
    >
      <Text size="sm">
        {t(isActive ? 'members:disableAbout' : 'members:enableAbout', {
          topics: number(member?.active_subscriptions ?? 0),
          requests: number(member?.pending_requests ?? 0),
        })}
      </Text>
    </Confirm>
  );
}

function ChoosePlan({ pubkey, member, onClose }: DialogProps) {
  const t = useT();
  const [plan, setPlan] = useState<string | null>(member?.plan_id ?? 'free');
  const [days, setDays] = useState<number | string>('');
  const plans = useQuery({
    queryKey: ['plans', 'all'],
    queryFn: () => dataOf(api.GET('/v1/admin/plans', { params: { query: { limit: 200 } } })),
  });
  const assign = useAction(
    (plan_id: string) =>
      dataOf(
        api.PUT('/v1/admin/members/{pubkey}/plan', {
          params: { path: { pubkey } },
          body: { plan_id, until: typeof days === 'number' ? Date.now() + days * 86_400_000 : null },
        }),
      ),
    {
      changes: [MEMBERS, ['plans']],
      onDone: () => {
        notifyDone(t('members:saved'));
        onClose();
      },
    },
  );
  return (
    <Confirm
      opened
      title={t('members:changePlan')}
      action={t('members:save')}
      isHarmless
      isBusy={assign.isPending}
      isDisabled={plan === null}
      onClose={onClose}
      onConfirm={() => plan !== null && assign.mutate(plan)}
    >
      <Select
        label={t('members:plan')}
        allowDeselect={false}
        value={plan}
        onChange={setPlan}
        data={(plans.data?.items ?? []).map(({ plan_id, name }) => ({ value: plan_id, label: name }))}
      />
      <NumberInput
        label={t('members:planDays')}
        description={t('members:planDaysAbout')}
        min={1}
        max={36_500}
        allowDecimal={false}
        value={days}
        onChange={setDays}
      />
    </Confirm>
  );
}

function Export({ pubkey, title, onClose }: DialogProps) {
  const t = useT();
  const request = useAction(
    () =>
      dataOf(
        api.POST('/v1/admin/members/{pubkey}/personal-data-exports', {
          params: { path: { pubkey } },
          body: {},
        }),
      ),
    {
      changes: [MEMBERS],
      onDone: () => {
        notifyDone(t('members:exportAsked'));
        onClose();
      },
    },
  );
  return (
    <Confirm
      opened
      title={t('members:exportTitle', { name: title })}
      action={t('members:export')}
      isHarmless
      isBusy={request.isPending}
      onClose={onClose}
      onConfirm={() => request.mutate(undefined)}
    >
      <Text size="sm">{t('members:exportAbout')}</Text>
    </Confirm>
  );
}

function Erase({ pubkey, title, onClose }: DialogProps) {
  const t = useT();
  const [days, setDays] = useState<number | string>('');
  const held = useQuery({
    queryKey: ['erasure-preview', pubkey],
    queryFn: () =>
      dataOf(api.GET('/v1/admin/members/{pubkey}/erasure-preview', { params: { path: { pubkey } } })),
    staleTime: 0,
  });
  const erase = useAction(
    () =>
      dataOf(
        api.POST('/v1/admin/erasures', {
          body: { pubkey, ...(typeof days === 'number' ? { grace_days: days } : {}) },
        }),
      ),
    {
      changes: [MEMBERS, ['erasures']],
      onDone: () => {
        notifyDone(t('members:eraseAsked'));
        onClose();
      },
    },
  );
  const stores = held.data?.stores.filter(({ rows }) => rows !== 0) ?? [];
  return (
    <Confirm
      opened
      title={t('members:eraseTitle', { name: title })}
      action={t('members:erase')}
      name={title.startsWith('npub1') ? npubOf(pubkey).slice(0, 10) : title}
      isBusy={erase.isPending}
      isDisabled={!held.isSuccess}
      onClose={onClose}
      onConfirm={() => erase.mutate(undefined)}
    >
      <Text size="sm">{t('members:eraseAbout')}</Text>
      {held.isPending && <Loading />}
      {held.isError && <Failure error={held.error} retry={() => void held.refetch()} />}
      {held.isSuccess && (
        <>
          <Text size="sm" fw={600}>
            {t('members:eraseRows', { rows: number(held.data.rows), stores: number(stores.length) })}
          </Text>
          <ScrollArea.Autosize mah={180} type="auto" viewportProps={{ tabIndex: 0 }}>
            <Stack gap={2} pr="sm">
              {stores.map(({ name, rows }) => (
                <Amount key={name} label={name}>
                  {rows === null ? t('members:notCounted') : number(rows)}
                </Amount>
              ))}
            </Stack>
          </ScrollArea.Autosize>
        </>
      )}
      <NumberInput
        label={t('members:graceDays')}
        description={t('members:graceDaysAbout')}
        min={0}
        max={30}
        allowDecimal={false}
        value={days}
        onChange={setDays}
      />
    </Confirm>
  );
}
