/** Links between the members' pages. Some pages are loaded as a whole (places.ts). */
import { Link, useNavigate } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { prefix } from '../../shared/place.js';
import { isLoadedWhole } from '../places.js';

interface GoProps {
  readonly to: string;
  readonly children: ReactNode;
  readonly className?: string;
  readonly 'aria-current'?: 'page' | undefined;
}

export function Go({ to, children, className = 'link', ...others }: GoProps) {
  const rest = { className, ...others };
  return isLoadedWhole(to) ? (
    <a href={prefix + to} {...rest}>
      {children}
    </a>
  ) : (
    <Link to={to} activeOptions={{ exact: true }} {...rest}>
      {children}
    </Link>
  );
}

export function useGo(): (to: string) => void {
  const navigate = useNavigate();
  return (to) => {
    if (isLoadedWhole(to)) location.assign(prefix + to);
    else void navigate({ to });
  };
}
