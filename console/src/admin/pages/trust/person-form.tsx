/** A field for a public key that leads to the trust in that person. */
import { Button, Group, TextInput } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { useT } from '../../../shared/i18n.js';
import { pubkeyOf } from '../../../shared/keys.js';

export function PersonForm() {
  const t = useT();
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const [isWrong, setWrong] = useState(false);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const pubkey = pubkeyOf(typed);
        setWrong(pubkey === undefined);
        if (pubkey !== undefined) void navigate({ to: `/trust/${pubkey}` });
      }}
    >
      <Group align="flex-start" gap="sm" justify="center" mt="sm">
        <TextInput
          aria-label={t('trust:person')}
          placeholder={t('trust:personHint')}
          value={typed}
          w={{ base: 260, sm: 380 }}
          autoComplete="off"
          spellCheck={false}
          error={isWrong ? t('trust:wrong') : undefined}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            setWrong(false);
          }}
        />
        <Button type="submit">{t('trust:look')}</Button>
      </Group>
    </form>
  );
}
